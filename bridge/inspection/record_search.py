"""`bridge find`: the deliveries of one record, or of all records of a key, with their fate and location; also the
sibling deliveries of a dead letter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from celery import Celery

from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, KafkaUnavailable, LedgerUnavailable
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.delivery_identity import Place
from bridge.formats.failure import cut
from bridge.formats.group_decision import (
    GroupDecision,
    PolicyData,
    find_changed_policies,
    summarize_policy_changes,
)
from bridge.formats.halt_scope import HaltScope, find_small_halts
from bridge.formats.text_forms import format_time, make_printable
from bridge.handler_routes import Routes
from bridge.inspection.dead_holds import read_letters_and_holds
from bridge.inspection.delivery_trace import (
    UNENDED,
    DeliveryLocator,
    DeliveryTrace,
    RecordsByPlace,
    read_produced_at,
    trace_deliveries,
)
from bridge.inspection.terminal_output import EMPTY_KEY
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, ExtentReader, find_offsets_at, group_unreadable
from bridge.kafka.record_reader import UNLIMITED, BackwardReader, ReadBudget, ReadLimits, read_records
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Fate
from bridge.operator_actions.topic_halt import find_halts, make_halt_view
from bridge.settings import Settings

#: The most characters of an error that are printed; JSON has it whole.
SHOWN_ERROR: Final = 300
#: The latest offsets of each partition that are searched for a key.
LOOKED_THROUGH: Final = 1_000_000
#: The most that is read to find the first record of each partition from a time on: compaction may have removed some.
FROM_TIME: Final = ReadLimits(records=20_000, bytes=100_000_000, seconds=15)
_BEHIND_TIME: Final = 100


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search for records of one topic.

    Attributes:
        data: the records as JSON-able data.
        looked_from: by partition that was not searched from its beginning, the first offset that was searched.
        kept: by partition, the first offset in Kafka, and the one behind the last.
        unreadable: the partitions that would have to be read and cannot be, each with the reason.
        limit: the limit that ended the search, in words; empty: none did.
        below: by partition the offset below which the search began, if that is not its end.
    """

    data: list[dict[str, Any]]
    looked_from: Mapping[int, int]
    kept: Mapping[int, tuple[int, int]]
    unreadable: Mapping[Place, str] = field(default_factory=dict)
    limit: str = ""
    below: Mapping[int, int] = field(default_factory=dict)


def describe_unread(result: SearchResult) -> str:
    """Return a sentence on what could not be read: what is found is not all (pure)."""
    return (
        f"Kafka answers, and cannot read {'; '.join(group_unreadable(result.unreadable))}: what is there is not known. "
        "Start the broker that had it; `bridge status` shows all that cannot be read."
    )


def parse_coordinates(text: str) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of `orders-3-1234`; `None` for another form, or one that Kafka cannot have."""
    topic, *numbers = text.rsplit("-", 2)
    if len(numbers) != 2 or not topic.isprintable():
        return None
    if not all(number.isdecimal() and len(number) < 20 for number in numbers):
        return None
    partition, offset = map(int, numbers)
    return (topic, partition, offset) if partition < 2**31 and offset < 2**63 else None


def find_record(
    app: Celery, settings: Settings, routes: Routes, topic: str, partition: int, offset: int
) -> SearchResult:
    """Return one record with its deliveries, one for each handler.

    Of a partition that cannot be read, the record is not known, and its deliveries are shown if the ledger has any.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    reader = ExtentReader()
    kept = reader.read(settings, [topic])
    # The other partitions of the topic are not asked for.
    reader.unreadable = {place: why for place, why in reader.unreadable.items() if place == (topic, partition)}
    there = [extent for extent in kept if extent.partition == partition and offset < extent.end]
    starts = {(extent.topic, extent.partition): max(offset, extent.first) for extent in there}
    ends = dict.fromkeys(starts, offset + 1)
    read = {(record.partition() or 0, record.offset() or 0): record for record in read_records(settings, starts, ends)}
    place = (partition, offset)
    found = {place: read.get(place)} if there or reader.unreadable else {}
    standing = _describe_records(app, settings, routes, topic, found, there, reader)
    if not there and all(delivery["fate"] == "open" for each in standing for delivery in each["deliveries"]):
        standing = []
    return SearchResult(standing, {}, _kept(kept), reader.unreadable)


def find_records_by_key(
    app: Celery,
    settings: Settings,
    routes: Routes,
    topic: str,
    key: str,
    limits: ReadLimits = UNLIMITED,
    below: Mapping[int, int] = MappingProxyType({}),
    most: int | None = None,
) -> SearchResult:
    """Return every record with this key among the latest million of each partition, with its deliveries.

    Parameters:
        limits: of what is read; the latest records are read first.
        below: by partition the offset below which the search begins, to continue an earlier one.
        most: the most records that are found; `None`: all.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    reader, budget = ExtentReader(), ReadBudget(limits)
    there = reader.read(settings, [topic])
    ends = {each.place: max(each.first, min(each.end, below.get(each.partition, each.end))) for each in there}
    starts = {each.place: max(each.first, ends[each.place] - LOOKED_THROUGH) for each in there}
    wanted = key.encode()
    read: dict[tuple[int, int], Record | None] = {}
    with BackwardReader(settings, budget) as backwards:
        for window in backwards.read_windows(starts, ends, lambda record: record.key() == wanted):
            for record in window:
                # Not needed, and there may be many.
                record.set_value(None)
                read[record.partition() or 0, record.offset() or 0] = record
            if most is not None and len(read) >= most:
                break
    reached = {each.partition: backwards.searched.get(each.place, starts[each.place]) for each in there}
    limit = budget.reached if any(reached[number] > starts[topic, number] for number in reached) else ""
    if most is not None and len(read) >= most:
        limit = f"{most:,} records of this key"
        reached |= drop_oldest_records(read, most)
    looked_from = {each.partition: reached[each.partition] for each in there if reached[each.partition] > each.first}
    standing = _describe_records(app, settings, routes, topic, dict(sorted(read.items())), there, reader)
    return SearchResult(standing, looked_from, _kept(there), reader.unreadable, limit if looked_from else "", below)


def drop_oldest_records(read: dict[tuple[int, int], Record | None], most: int) -> dict[int, int]:
    """Drop all but the latest records; return by partition the offset from which on none of its own was dropped."""
    by_age = sorted(read, key=lambda place: (read_produced_at(read[place]) or 0.0, place), reverse=True)
    begin: dict[int, int] = {}
    for partition, offset in by_age[most:]:
        begin[partition] = max(offset + 1, begin.get(partition, 0))
    for place in by_age:
        if place[1] < begin.get(place[0], 0):
            del read[place]
    return begin


def find_records_at_time(app: Celery, settings: Settings, routes: Routes, topic: str, moment: str) -> SearchResult:
    """Return the first record of each partition that was written at a time or later, with its deliveries.

    Parameters:
        moment: ISO 8601.

    Raises:
        NoMoment: it is no time.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    reader, budget = ExtentReader(), ReadBudget(FROM_TIME)
    there = reader.read(settings, [topic])
    offsets = find_offsets_at(settings, there, moment) if there else {}
    starts = {each.place: offsets[each.partition] for each in there if offsets[each.partition] < each.end}
    ends = {each.place: min(each.end, starts[each.place] + _BEHIND_TIME) for each in there if each.place in starts}
    read: dict[tuple[int, int], Record | None] = {}
    for record in read_records(settings, starts, ends, budget):
        place = (record.partition() or 0, record.offset() or 0)
        if not any(partition == place[0] for partition, _ in read):
            read[place] = record
    standing = _describe_records(app, settings, routes, topic, dict(sorted(read.items())), there, reader)
    return SearchResult(standing, {}, _kept(there), reader.unreadable, budget.reached)


def _kept(there: Sequence[Extent]) -> dict[int, tuple[int, int]]:
    return {extent.partition: (extent.first, extent.end) for extent in there}


def _describe_records(
    app: Celery,
    settings: Settings,
    routes: Routes,
    topic: str,
    found: RecordsByPlace,
    there: Sequence[Extent],
    reader: ExtentReader,
) -> list[dict[str, Any]]:
    if not found:
        return []
    beside = ExtentReader()
    traced = trace_deliveries(settings, routes, topic, found, there, beside.read)
    carriers, why = _carriers(app, routes, topic, traced.in_flight)
    policies, halt = find_changed_policies(traced.decided), find_halts(traced.decided).get(topic)
    keys = {place: _read_key(record) for place, record in found.items()}
    halted = find_halted_deliveries(traced, topic, keys, routes.current_names)
    dead_letters = TopicNames.from_settings(settings).dead_letters(topic)
    letters, holds = read_letters_and_holds(settings, topic, traced, keys, beside.read)
    unreadable = group_unreadable({place: why for place, why in beside.unreadable.items() if place[0] != dead_letters})
    known = DeliveryLocator(
        topic,
        dead_letters,
        settings.file.kafka_stuck_after,
        traced.since,
        traced.before,
        traced.forgotten,
        halt is not None,
        carriers,
        why,
        letters,
        traced.parked,
        {name: handler.queue for name, handler in routes.handlers.items()},
        {which: _describe_resumption(scope) for which, (scope, _) in halted.items()},
        unreadable,
    )
    if any(is_place_unknown(which, fate, traced, carriers, letters) for which, fate in traced.fates.items()):
        reader.unreadable.update(beside.unreadable)
    return [
        {
            "record": _record(topic, place, record),
            "halted": None if halt is None else make_halt_view(halt),
            "deliveries": [
                _delivery(known, traced, policies, halted, (*place, name)) | {"held_by": holds.get((*place, name))}
                for name in traced.handlers
            ],
        }
        for place, record in found.items()
    ]


def _carriers(
    app: Celery, routes: Routes, topic: str, wanted: set[DeliveryKey]
) -> tuple[dict[DeliveryKey, CarrierMessage], str | None]:
    """Return the Celery messages that carry these deliveries, or why they are not known."""
    if not wanted:
        return {}, None
    broker = CeleryBroker(app)
    try:
        carriers = BrokerSearch(broker).carriers(routes.queues, topic, wanted)
    except HandoffFailed as error:
        return {}, f"the Celery broker does not answer: {error}"
    finally:
        broker.close()
    return ({}, "the Celery broker, whose messages cannot be listed") if carriers is None else (carriers, None)


def is_place_unknown(
    which: DeliveryKey,
    fate: Fate,
    traced: DeliveryTrace,
    carriers: Mapping[DeliveryKey, CarrierMessage],
    letters: Mapping[DeliveryKey, DeadLetterSummary],
) -> bool:
    """Return whether a delivery is parked or dead, and was found neither in Kafka nor in the broker (pure)."""
    if fate is Fate.DEAD:
        return which not in letters
    return fate is Fate.PARKED and which not in traced.parked and which not in carriers


def find_halted_deliveries(
    traced: DeliveryTrace,
    topic: str,
    keys: Mapping[tuple[int, int], bytes | None],
    names: Mapping[str, str] = MappingProxyType({}),
) -> dict[DeliveryKey, tuple[HaltScope, GroupDecision]]:
    """Return the deliveries that are yet to run, dead ones that were sent back too, whose handler or key is halted
    (pure).

    Parameters:
        keys: the keys of the records.
        names: by former name of a handler its current one.
    """
    halts = find_small_halts(traced.decided)
    return {
        which: (scope, halt)
        # A halted handler, which comes first, counts over its halted keys.
        for scope, halt in reversed(halts.items())
        for handler in {scope.handler, scope.under_current_name(names).handler}
        for place, key in keys.items()
        if scope.topic == topic
        and scope.key_bytes in (None, key)
        and (traced.fates.get(which := (*place, handler)) in UNENDED or which in traced.parked)
    }


def _describe_resumption(scope: HaltScope) -> str:
    # Not everybody may see keys.
    if scope.key is not None:
        return "its key is resumed (bridge status)"
    return f"its handler is resumed (bridge resume {scope.arguments})"


def _delivery(
    known: DeliveryLocator,
    traced: DeliveryTrace,
    policies: Mapping[str, PolicyData],
    halted: Mapping[DeliveryKey, tuple[HaltScope, GroupDecision]],
    which: DeliveryKey,
) -> dict[str, Any]:
    carrier = known.carriers.get(which)
    fate = traced.fates[which]
    location = known.locate(which, fate)
    return {
        **location,
        "task": traced.ran.get(which) if carrier is None else carrier.task_id,
        "policy": summarize_policy_changes(policies.get(which[2]), _ended(fate, location["since"])),
        "halted": _describe_halt(*halted[which]) if which in halted else None,
    }


def _describe_halt(scope: HaltScope, halt: GroupDecision) -> dict[str, Any]:
    view = make_halt_view(halt)
    return {"what": "handler" if scope.key is None else "key"} | {name: view[name] for name in ("why", "since", "by")}


def _ended(fate: Fate, since: str | None) -> float | None:
    """Return when a delivery ended, after which no change of a policy concerned it; `None` if it has not ended."""
    if fate not in (Fate.DONE, Fate.DEAD, Fate.DISCARDED):
        return None
    # The time of its end is unknown: no change is known to be older.
    return datetime.fromisoformat(since).timestamp() if since else 0.0


def _read_key(record: Record | None) -> bytes | None:
    """Return the key of a record; `None` if it has none, or Kafka does not have it any more."""
    key = None if record is None else record.key()
    return None if key is None else bytes(key)


def _record(topic: str, place: tuple[int, int], record: Record | None) -> dict[str, Any]:
    produced = read_produced_at(record)
    key = _read_key(record)
    return {
        "topic": topic,
        "partition": place[0],
        "offset": place[1],
        "key": None if key is None else key.decode("utf-8", "backslashreplace"),
        "timestamp": None if produced is None else round(produced * 1000),
    }


def format_result(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the result for people; keys and errors cannot break a line."""
    yield from map(make_printable, _lines(records))


def _lines(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in records:
        record = each["record"]
        key = "" if record["key"] is None else f", key {record['key'] or EMPTY_KEY}"
        at = "?" if record["timestamp"] is None else format_time(record["timestamp"] / 1000, "milliseconds")
        yield f"{record['topic']}-{record['partition']}-{record['offset']}, of {at}{key}"
        if halt := each["halted"]:
            yield f"  the topic is halted since {halt['since']}, by {halt['by']}: {halt['why']}"
        for delivery in each["deliveries"]:
            roughly = "about " if delivery["fate"] == "handed" else ""
            since = f" since {roughly}{delivery['since']}" if delivery["since"] else ""
            where = f": {delivery['where']}" if delivery["where"] else ""
            counts = ", ".join(f"{count} {what}" for what, count in delivery["attempts"].items() if count)
            yield f"  {delivery['handler']}: {delivery['fate']}{since}{where}" + (f" ({counts})" if counts else "")
            if halt := delivery.get("halted"):
                yield f"    its {halt['what']} is halted since {halt['since']}, by {halt['by']}: {halt['why']}"
            if held_by := delivery.get("held_by"):
                yield (
                    f"    it waits behind {held_by['record']} in its order, which is dead: replay or discard "
                    f"{held_by['letter']}"
                )
            if delivery["task"]:
                yield f"    task {delivery['task']}"
            if delivery["policy"]:
                yield f"    its handler's policy was {delivery['policy']}"
            if delivery["last_error"]:
                yield f"    {cut(delivery['last_error'], SHOWN_ERROR)}"


#: The deliveries as `bridge find` prints them; or why they are not known.
SiblingDeliveries = Sequence[Mapping[str, Any]] | str


def find_sibling_deliveries(
    app: Celery, settings: Settings, routes: Routes, origin: str, topic: str, partition: int, offset: int
) -> SiblingDeliveries:
    """Return the deliveries of a dead letter's record, or why they are not known.

    Parameters:
        origin: the program that wrote the dead letter.
        topic, partition, offset: of the source record.
    """
    if origin != "bridge":
        return f"not known: {origin} wrote this letter, not the bridge"
    if settings.ledger_url is None:
        return "not known: there is no ledger, because the broker is no Redis (set LEDGER_URL)"
    try:
        found = find_record(app, settings, routes, topic, partition, offset)
    except (KafkaUnavailable, LedgerUnavailable) as error:
        return f"not known: {error}"
    if not found.data and found.unreadable:
        return f"not known: {describe_unread(found)}"
    deliveries: SiblingDeliveries = (
        found.data[0]["deliveries"] if found.data else "not known: Kafka does not have that record (any more)"
    )
    return deliveries
