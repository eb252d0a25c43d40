"""`bridge find`: where one record stands for each handler, and where it lies now."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from celery import Celery

from bridge.commands.audit import wiped_below
from bridge.commands.halt import halts, shown
from bridge.commands.opened import opened
from bridge.commands.parked import Lies, Search
from bridge.commands.whereabouts import Whereabouts, iso
from bridge.errors import HandoffFailed
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.handoff.carriers import Carrier, Which
from bridge.handoff.messages import Messages
from bridge.kafka import Record
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogBook
from bridge.ledger.carried import named_alone, noted
from bridge.ledger.control import Mirror
from bridge.ledger.handed import STEP, handed_at
from bridge.records.dead_letter import DeadLetter
from bridge.records.failure import cut
from bridge.records.parked import Parked, read
from bridge.records.policies import changed_policies, summary
from bridge.records.printable import printable
from bridge.settings import Settings
from bridge.topics.dead_letters import RECENT, dead_letters
from bridge.topics.extents import Extent, extents
from bridge.topics.names import TopicNames
from bridge.topics.readback import records

#: Most characters of an error that are shown to people; as JSON it is whole.
ERROR: Final = 300
#: Offsets of each partition that are looked through for a key, the latest.
LOOKED_THROUGH: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """What `bridge find` found of some records of one topic; `data` as the command prints it."""

    data: list[dict[str, Any]]
    looked_from: Mapping[int, int]


def coordinates(text: str) -> tuple[str, int, int] | None:
    """Topic, partition and offset of `orders-3-1234`; `None` if it is not of that form."""
    topic, *numbers = text.rsplit("-", 2)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    return topic, int(numbers[0]), int(numbers[1])


def find(app: Celery, settings: Settings, routes: Routes, topic: str, partition: int, offset: int) -> Found:
    """Say where one record stands for each handler.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    there = [each for each in extents(settings, [topic]) if each.partition == partition and offset < each.end]
    starts = {(each.topic, each.partition): max(offset, each.first) for each in there}
    ends = dict.fromkeys(starts, offset + 1)
    read = {(record.partition() or 0, record.offset() or 0): record for record in records(settings, starts, ends)}
    place = (partition, offset)
    return Found(_standing(app, settings, routes, topic, {place: read.get(place)} if there else {}, there), {})


def find_key(app: Celery, settings: Settings, routes: Routes, topic: str, key: str) -> Found:
    """Say the same of every record with this key, of the latest million of each partition.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    there = extents(settings, [topic])
    starts = {(topic, each.partition): max(each.first, each.end - LOOKED_THROUGH) for each in there}
    ends = {(topic, each.partition): each.end for each in there}
    wanted = key.encode()
    read: dict[tuple[int, int], Record | None] = {
        (record.partition() or 0, record.offset() or 0): record
        for record in records(settings, starts, ends)
        if record.key() == wanted
    }
    looked_from = {e.partition: starts[(topic, e.partition)] for e in there if starts[(topic, e.partition)] > e.first}
    return Found(_standing(app, settings, routes, topic, dict(sorted(read.items())), there), looked_from)


def _standing(
    app: Celery,
    settings: Settings,
    routes: Routes,
    topic: str,
    found: Mapping[tuple[int, int], Record | None],
    there: Sequence[Extent],
) -> list[dict[str, Any]]:
    if not found:
        return []
    with opened(settings, [topic]) as (ledger, catalog):
        topic_id = catalog.topic_ids.get(topic, "")
        names = [handler.name for handler in routes.of(topic)]
        names += sorted(
            {
                account.handler
                for account in Accounts(ledger).everyone()
                if (account.topic, KnownLog.of(account.topic_id).topic_id) == (topic, topic_id)
            }
            - {*names}
        )
        book = LogBook(ledger)
        asked = [
            (Account(name, topic, book.log_id(topic, topic_id, place[0]), place[0]), place[1])
            for place in found
            for name in names
        ]
        fates = ledger.fates_many([(account, offset, offset) for account, offset in asked])
        standing = {
            (account.partition, offset, account.handler): Fate(fate[0])
            for (account, offset), fate in zip(asked, fates, strict=True)
        }
        before = _before(ledger, asked, standing)
        forgotten = _forgotten(settings, ledger, routes, there, asked)
        since = _since(ledger, [(account, offset) for account, offset in asked], standing, found)
        ran = _ran(ledger, routes, asked, standing)
        parked = _parked(Search(settings, ledger, catalog, topic), {account for account, _ in asked}, standing)
        decided = Mirror(ledger).read().in_force()
    policies, halt = changed_policies(decided), halts(decided).get(topic)
    queues = {name: handler.queue for name, handler in routes.handlers.items()}
    wanted = {which for which, fate in standing.items() if fate is Fate.HANDED}
    wanted |= {which for which, (lies, _) in parked.items() if lies.fate is Fate.HANDED}
    carriers, why = _carriers(app, routes, topic, wanted)
    logs = {account.partition: account.topic_id for account, _ in asked}
    letters = _letters(settings, topic, standing, logs)
    known = Whereabouts(
        topic,
        TopicNames.of(settings).dead_letters(topic),
        settings.file.kafka_stuck_after,
        since,
        before,
        forgotten,
        halt is not None,
        carriers,
        why,
        letters,
        parked,
        queues,
    )
    return [
        {
            "record": _record(topic, place, record),
            "halted": None if halt is None else shown(halt),
            "deliveries": [
                known.of(which, standing[which])
                | {"task": carriers[which].task_id if which in carriers else ran.get(which)}
                | {"policy": summary(policies.get(name))}
                for name in names
                for which in [(*place, name)]
            ],
        }
        for place, record in found.items()
    ]


def _before(ledger: Ledger, asked: Sequence[tuple[Account, int]], standing: Mapping[Which, Fate]) -> frozenset[Which]:
    """What a handler does not get: it began above, or never on that partition though others had the record."""
    accounts = list({account for account, _ in asked})
    joined = {account: each.joined for account, each in zip(accounts, Accounts(ledger).known(accounts), strict=True)}
    had = {which[:2] for which, fate in standing.items() if fate is not Fate.OPEN}
    return frozenset(
        (account.partition, offset, account.handler)
        for account, offset in asked
        if ((account.partition, offset) in had if (first := joined[account]) is None else offset < first)
    )


def _forgotten(
    settings: Settings,
    ledger: Ledger,
    routes: Routes,
    there: Iterable[Extent],
    asked: Sequence[tuple[Account, int]],
) -> frozenset[Which]:
    """What lies below what was handed off with a ledger that is no more, as the audit counts it."""
    accounts = list({account for account, _ in asked})
    lost = {account: each.lost or 0 for account, each in zip(accounts, Accounts(ledger).known(accounts), strict=True)}
    for extent in there:
        ours = [a for a in accounts if a.partition == extent.partition and a.handler in routes.handlers]
        wiped = wiped_below(settings, ledger, extent, ours)
        lost |= {account: max(lost[account], wiped) for account in ours}
    committed = {extent.partition: extent.committed or 0 for extent in there}
    return frozenset(
        (account.partition, offset, account.handler)
        for account, offset in asked
        if offset < min(lost[account], committed.get(account.partition, 0))
    )


def _since(
    ledger: Ledger,
    asked: Iterable[tuple[Account, int]],
    standing: Mapping[Which, Fate],
    found: Mapping[tuple[int, int], Record | None],
) -> dict[Which, float]:
    """About when those were handed off that are under way."""
    by_account: dict[Account, list[int]] = {}
    for account, offset in asked:
        if standing[(account.partition, offset, account.handler)] is Fate.HANDED:
            by_account.setdefault(account, []).append(offset)
    return {
        (account.partition, offset, account.handler): about(at, _produced(found[(account.partition, offset)]))
        for account, offsets in by_account.items()
        for offset, at in handed_at(ledger, account, offsets).items()
    }


def about(step: float, produced: float | None) -> float:
    """When something was handed off of which the step of ten seconds is known: not before it was produced (pure)."""
    return step if produced is None else max(step, min(produced, step + STEP))


def _ran(
    ledger: Ledger,
    routes: Routes,
    asked: Sequence[tuple[Account, int]],
    standing: Mapping[Which, Fate],
) -> dict[Which, str]:
    """The Celery tasks in which those ended that have, as far as it is certain."""
    ended = [
        (account, offset)
        for account, offset in asked
        if standing[(account.partition, offset, account.handler)] in (Fate.DONE, Fate.DEAD)
    ]
    if not ended:
        return {}
    tasks = noted(ledger, ended)
    alone = {handler.name for handler in routes if handler.batch == 1}
    return {
        (account.partition, offset, account.handler): tasks.get((account, offset)) or named_alone((account, offset))
        for account, offset in ended
        if (account, offset) in tasks or account.handler in alone
    }


def _produced(record: Record | None) -> float | None:
    """The record's own time (Unix time), if it has one."""
    kind, at = record.timestamp() if record is not None else (0, 0)
    return at / 1000 if kind else None


def _carriers(app: Celery, routes: Routes, topic: str, wanted: set[Which]) -> tuple[dict[Which, Carrier], str | None]:
    """The Celery messages that carry these deliveries; or why that cannot be told."""
    if not wanted:
        return {}, None
    broker = Broker(app)
    try:
        found = Messages(broker).carriers(routes.queues, topic, wanted)
    except HandoffFailed as error:
        return {}, f"the Celery broker does not answer: {error}"
    finally:
        broker.close()
    return ({}, "the Celery broker, whose messages cannot be listed") if found is None else (found, None)


def _parked(
    search: Search, accounts: Container[Account], standing: Mapping[Which, Fate]
) -> dict[Which, tuple[Lies, Parked]]:
    """Of those that are parked, the records in which they lie."""
    wanted = {which for which, fate in standing.items() if fate is Fate.PARKED}
    if not wanted:
        return {}
    found = {}
    for lies in search.look():
        which = (lies.origin.partition, lies.origin.offset, lies.origin.handler)
        if which in wanted and lies.account in accounts and (held := read(lies.record, "", "")) is not None:
            found[which] = (lies, held)
    return found


def _letters(
    settings: Settings, topic: str, standing: Mapping[Which, Fate], logs: Mapping[int, str]
) -> dict[Which, DeadLetter]:
    """The last dead letter of each, of the logs (ids by partition) that the topic has now."""
    if Fate.DEAD not in standing.values():
        return {}
    return {
        (whose.partition, whose.offset, whose.handler): letter
        for letter in dead_letters(settings, topic, RECENT).letters
        if (whose := letter.whose).is_of(logs.get(whose.partition, ""))
    }


# As JSON


def _record(topic: str, place: tuple[int, int], record: Record | None) -> dict[str, Any]:
    produced = _produced(record)
    key = record.key() if record is not None else None
    return {
        "topic": topic,
        "partition": place[0],
        "offset": place[1],
        "key": None if key is None else bytes(key).decode("utf-8", "backslashreplace"),
        "timestamp": None if produced is None else round(produced * 1000),
    }


def lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was found, for people: keys and errors are others' texts, and end no line."""
    yield from map(printable, _lines(found))


def _lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in found:
        record = each["record"]
        key = "" if record["key"] is None else f", key {record['key']}"
        at = "?" if record["timestamp"] is None else iso(record["timestamp"] / 1000)
        yield f"{record['topic']}-{record['partition']}-{record['offset']}, of {at}{key}"
        if halt := each["halted"]:
            yield f"  the topic is halted since {halt['since']}, by {halt['by']}: {halt['why']}"
        for delivery in each["deliveries"]:
            roughly = "about " if delivery["fate"] == "handed" else ""
            since = f" since {roughly}{delivery['since']}" if delivery["since"] else ""
            where = f": {delivery['where']}" if delivery["where"] else ""
            counts = ", ".join(f"{count} {what}" for what, count in delivery["attempts"].items() if count)
            yield f"  {delivery['handler']}: {delivery['fate']}{since}{where}" + (f" ({counts})" if counts else "")
            if delivery["task"]:
                yield f"    task {delivery['task']}"
            if delivery["policy"]:
                yield f"    its handler's policy was {delivery['policy']}"
            if delivery["last_error"]:
                yield f"    {cut(delivery['last_error'], ERROR)}"
