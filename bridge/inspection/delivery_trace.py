"""The trace of the deliveries of some records: the fates and times that the ledger has, the records of retry topics
that hold them, and the location of each as `bridge find` says it: a queue, a retry topic, a dead-letter topic.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from bridge.dispatch.carrier_message import CarrierMessage, DeliveryKey
from bridge.formats.dead_letter_record import DeadLetterSummary
from bridge.formats.group_decision import GroupDecision
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.formats.text_forms import format_time
from bridge.handler_routes import Routes
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent, ExtentRead
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogHistory
from bridge.ledger.decision_store import DecisionMirror, look_up_decisions
from bridge.ledger.group_access import open_ledger
from bridge.ledger.handoff_times import STEP_SECONDS, find_handoff_times
from bridge.ledger.task_notes import find_noted_tasks, name_single_task
from bridge.ledger.unaccounted_offsets import find_wiped_end
from bridge.ledger.unsettled_retry_records import ParkedSearch, UnsettledRecord
from bridge.settings import Settings

#: Records by partition and offset; `None` for a record that Kafka no longer has.
RecordsByPlace = Mapping[tuple[int, int], Record | None]
#: The deliveries that are traced: accounts with offsets.
AskedDeliveries = Sequence[tuple[Account, int]]

#: The fates of a delivery that is yet to run.
UNENDED: Final = (Fate.OPEN, Fate.HANDED, Fate.PARKED)


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """The fates of some deliveries, and what else the ledger and the retry topics know of them.

    Attributes:
        handlers: the handlers of the deliveries.
        fates: by delivery, its fate.
        logs: by partition, the id of its log.
        since: by delivery in flight, about when it was handed off.
        before: deliveries whose records are older than their handler.
        forgotten: deliveries that were committed with a ledger that was wiped since.
        ran: by ended delivery, the Celery task in which it ended, if that is certain.
        parked: by parked delivery, and by dead one that was sent back, its record in a retry or replay topic, and what
            that holds.
        decided: the decisions in force for the group.
    """

    handlers: Sequence[str]
    fates: Mapping[DeliveryKey, Fate]
    logs: Mapping[int, str]
    since: Mapping[DeliveryKey, float]
    before: frozenset[DeliveryKey]
    forgotten: frozenset[DeliveryKey]
    ran: Mapping[DeliveryKey, str]
    parked: Mapping[DeliveryKey, tuple[UnsettledRecord, RetryRecord]]
    decided: Mapping[str, GroupDecision]

    @property
    def in_flight(self) -> set[DeliveryKey]:
        """The deliveries that a Celery message carries, or should."""
        handed = {which for which, fate in self.fates.items() if fate is Fate.HANDED}
        # A deleted topic has no record, and its deliveries that were handed off are still in flight.
        gone = {which for which, fate in self.fates.items() if fate is Fate.PARKED and which not in self.parked}
        return handed | gone | {which for which, (record, _) in self.parked.items() if record.fate is Fate.HANDED}


def trace_deliveries(
    settings: Settings, routes: Routes, topic: str, found: RecordsByPlace, there: Sequence[Extent], read: ExtentRead
) -> DeliveryTrace:
    """Return the deliveries of some records of one topic.

    Parameters:
        there: the topic's partitions.
        read: reads the extents of its retry and replay topics.

    Raises:
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    with open_ledger(settings, [topic]) as (ledger, catalog):
        handlers = _handlers(ledger, catalog, routes, topic)
        asked = _list_asked(ledger, catalog, topic, handlers, found)
        fates = _fates(ledger, asked)
        return DeliveryTrace(
            handlers,
            fates,
            {account.partition: account.topic_id for account, _ in asked},
            _since(ledger, asked, fates, found),
            _before(ledger, asked, fates),
            _forgotten(settings, ledger, routes, there, asked),
            _ended_tasks(ledger, routes, asked, fates),
            _parked(ParkedSearch(settings, ledger, catalog, topic, read), {account for account, _ in asked}, fates),
            look_up_decisions(settings, DecisionMirror(ledger)),
        )


def _handlers(ledger: Ledger, catalog: TopicCatalog, routes: Routes, topic: str) -> list[str]:
    """Return the handlers of the topic, followed by those that it had before."""
    names = [handler.name for handler in routes.of(topic)]
    wanted = (topic, catalog.topic_ids.get(topic, ""))
    everyone = Accounts(ledger).list_accounts()
    had = {each.handler for each in everyone if (each.topic, KnownLog.from_id(each.topic_id).topic_id) == wanted}
    return names + sorted(had - {*names})


def _list_asked(
    ledger: Ledger, catalog: TopicCatalog, topic: str, handlers: Sequence[str], found: RecordsByPlace
) -> AskedDeliveries:
    log_of, topic_id = cache(LogHistory(ledger).log_id), catalog.topic_ids.get(topic, "")
    return [
        (Account(name, topic, log_of(topic, topic_id, partition), partition), offset)
        for partition, offset in found
        for name in handlers
    ]


def _which(account: Account, offset: int) -> DeliveryKey:
    return (account.partition, offset, account.handler)


def _fates(ledger: Ledger, asked: AskedDeliveries) -> dict[DeliveryKey, Fate]:
    fates = ledger.fates_many([(account, offset, offset) for account, offset in asked])
    return {_which(account, offset): Fate(fate[0]) for (account, offset), fate in zip(asked, fates, strict=True)}


def _before(ledger: Ledger, asked: AskedDeliveries, fates: Mapping[DeliveryKey, Fate]) -> frozenset[DeliveryKey]:
    """Return the deliveries that a handler does not get: it began at a later offset, or never on that partition."""
    accounts = list({account for account, _ in asked})
    joined = {
        account: progress.joined
        for account, progress in zip(accounts, Accounts(ledger).read_progress(accounts), strict=True)
    }
    had = {which[:2] for which, fate in fates.items() if fate is not Fate.OPEN}
    return frozenset(
        _which(account, offset)
        for account, offset in asked
        if ((account.partition, offset) in had if (first := joined[account]) is None else offset < first)
    )


def _forgotten(
    settings: Settings, ledger: Ledger, routes: Routes, there: Iterable[Extent], asked: AskedDeliveries
) -> frozenset[DeliveryKey]:
    """Return the deliveries that were handed off with a ledger that was wiped since, as the audit counts them."""
    accounts = list({account for account, _ in asked})
    lost = {
        account: progress.lost or 0
        for account, progress in zip(accounts, Accounts(ledger).read_progress(accounts), strict=True)
    }
    for extent in there:
        ours = [a for a in accounts if a.partition == extent.partition and a.handler in routes.handlers]
        wiped = find_wiped_end(settings, ledger, extent, ours)
        lost |= {account: max(lost[account], wiped) for account in ours}
    committed = {extent.partition: extent.committed or 0 for extent in there}
    return frozenset(
        _which(account, offset)
        for account, offset in asked
        if offset < min(lost[account], committed.get(account.partition, 0))
    )


def _since(
    ledger: Ledger, asked: AskedDeliveries, fates: Mapping[DeliveryKey, Fate], found: RecordsByPlace
) -> dict[DeliveryKey, float]:
    """Return about when each delivery in flight was handed off."""
    by_account: dict[Account, list[int]] = {}
    for account, offset in asked:
        if fates[_which(account, offset)] is Fate.HANDED:
            by_account.setdefault(account, []).append(offset)
    return {
        _which(account, offset): estimate_handoff_time(at, read_produced_at(found[(account.partition, offset)]))
        for account, offsets in by_account.items()
        for offset, at in find_handoff_times(ledger, account, offsets).items()
    }


def estimate_handoff_time(step: float, produced: float | None) -> float:
    """Return about when a delivery was handed off: within its step of ten seconds, not before its record (pure)."""
    return step if produced is None else max(step, min(produced, step + STEP_SECONDS))


def _ended_tasks(
    ledger: Ledger, routes: Routes, asked: AskedDeliveries, fates: Mapping[DeliveryKey, Fate]
) -> dict[DeliveryKey, str]:
    """Return the Celery task in which each ended delivery ended, if that is certain."""
    ended = [(account, offset) for account, offset in asked if fates[_which(account, offset)] in (Fate.DONE, Fate.DEAD)]
    if not ended:
        return {}
    tasks = find_noted_tasks(ledger, ended)
    alone = {handler.name for handler in routes if handler.batch == 1}
    return {
        _which(account, offset): tasks.get((account, offset)) or name_single_task((account, offset))
        for account, offset in ended
        if (account, offset) in tasks or account.handler in alone
    }


def read_produced_at(record: Record | None) -> float | None:
    """Return the record's own time (Unix time); `None` if it has none."""
    kind, at = record.timestamp() if record is not None else (0, 0)
    return at / 1000 if kind else None


def _parked(
    search: ParkedSearch, accounts: Container[Account], fates: Mapping[DeliveryKey, Fate]
) -> dict[DeliveryKey, tuple[UnsettledRecord, RetryRecord]]:
    """Return by parked or dead delivery its record in a retry or replay topic, and what that holds."""
    # A dead one stays dead until its replay has ended.
    wanted = {which for which, fate in fates.items() if fate in (Fate.PARKED, Fate.DEAD)}
    if not wanted:
        return {}
    parked = {}
    for record in search.read_new_records():
        which = (record.origin.partition, record.origin.offset, record.origin.handler)
        if (
            which in wanted
            and record.account in accounts
            and (held := read_retry_record(record.record, "", "")) is not None
        ):
            parked[which] = (record, held)
    return parked


@dataclass(frozen=True)
class DeliveryLocator:
    """The locations of some deliveries of one topic.

    Attributes:
        dead_letters: the name of the dead-letter topic.
        again: seconds after which a delivery that is in no message is handed off again (`kafka_stuck_after`).
        since: by delivery in flight, about when it was handed off.
        before: deliveries whose records are older than their handler.
        forgotten: deliveries that were committed with a ledger that was wiped since.
        halted: whether the topic is halted.
        carriers: by delivery, the Celery message that carries it.
        silent: why the messages are not known; `None`: they are.
        parked: by delivery, its record in a retry or replay topic, and what that holds.
        queues: by handler, its queue.
        held: the deliveries whose handler or key is halted, each with what a person resumes.
        unreadable: the partitions of retry and replay topics that cannot be read, each with the reason.
    """

    topic: str
    dead_letters: str
    again: float
    since: Mapping[DeliveryKey, float]
    before: Collection[DeliveryKey]
    forgotten: Collection[DeliveryKey]
    halted: bool
    carriers: Mapping[DeliveryKey, CarrierMessage]
    silent: str | None
    letters: Mapping[DeliveryKey, DeadLetterSummary]
    parked: Mapping[DeliveryKey, tuple[UnsettledRecord, RetryRecord]]
    queues: Mapping[str, str]
    held: Mapping[DeliveryKey, str] = field(default_factory=dict)
    unreadable: Sequence[str] = ()

    def locate(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        """Return the location of a delivery as JSON-able data."""
        location = self._locate(which, fate)
        attempts = dict.fromkeys(("failed", "lost", "postponed", "replayed")) | location.pop("attempts", {})
        at, until = location.pop("at", None), location.pop("until", None)
        return {
            "handler": which[2],
            "fate": fate.name.lower(),
            "where": location.get("where"),
            "since": None if at is None else format_time(at, "seconds" if fate is Fate.HANDED else "milliseconds"),
            "until": None if until is None else format_time(until, "milliseconds"),
            "attempts": attempts,
            "last_error": location.get("error"),
        }

    def _locate(self, which: DeliveryKey, fate: Fate) -> dict[str, Any]:
        match fate:
            case Fate.OPEN:
                why_not = "before this handler joined" if which in self.before else "not handed off"
                if which in self.forgotten:
                    why_not = "forgotten: handed off before the ledger was wiped, and lost unless it was settled before"
                return {"where": f"{self.topic}-{which[0]}, {why_not}"}
            case Fate.PARKED:
                return self._locate_parked(which)
            case Fate.HANDED:
                return {"at": self.since.get(which), **self._locate_handed(which)}
            case Fate.DEAD:
                return self._locate_dead(which)
        return {}

    def _locate_handed(self, which: DeliveryKey) -> dict[str, Any]:
        if (carrier := self.carriers.get(which)) is not None:
            return {
                "where": self._describe_carrier(carrier, which),
                "error": carrier.error or None,
                "attempts": carrier.attempts._asdict(),
                "until": carrier.due if carrier.where == "waiting" else None,
            }
        if self.silent:
            return {"where": self.silent}
        queue = self.queues.get(which[2], "its queue")
        return {
            "where": f"in no message of {queue}: just taken, or lost; handed off again {self.again:g} s after its "
            "hand-off"
        }

    def _locate_parked(self, which: DeliveryKey) -> dict[str, Any]:
        """Return the location of a parked delivery: a record of a retry or replay topic, or a message made from one."""
        if which not in self.parked and (carrier := self.carriers.get(which)) is not None and carrier.via is not None:
            in_flight = self._locate_handed(which)
            return {**in_flight, "where": f"{in_flight['where']} (by {carrier.via})"}
        if which not in self.parked and self.unreadable:
            return {"where": f"not known: Kafka cannot read {'; '.join(self.unreadable)}"}
        if which not in self.parked:
            return {"where": f"in no retry topic: run just now, or lost (`bridge audit {self.topic}` tells which)"}
        record, held = self.parked[which]
        delivery = held.delivery
        by = f"{record.place[0]}-{record.place[1]}-{record.offset}"
        location = {
            "at": held.failed_at / 1000 if held.failed_at else None,
            "error": delivery.error or None,
            "attempts": delivery.attempts._asdict(),
        }
        if record.fate is Fate.HANDED:
            in_flight = {name: value for name, value in self._locate_handed(which).items() if value is not None}
            return {**location, **in_flight, "where": f"{in_flight['where']} (by {by})"}
        until = max(held.due / 1000, delivery.due or 0.0)
        waits = f", waits until {format_time(until, 'milliseconds')}" if until else ""
        return {**location, "where": f"{by}{waits}", "until": until or None}

    def _locate_dead(self, which: DeliveryKey) -> dict[str, Any]:
        letter = self.letters.get(which)
        place, until = self.dead_letters if letter is None else letter.place, None
        if which in self.parked:
            replay = self._locate_parked(which)
            place, until = f"{place}; sent back: {replay['where']}", replay.get("until")
        if letter is None:
            return {"where": place, "until": until}
        attempts: dict[str, int] = {}
        if letter.attempts is not None:
            attempts = letter.attempts._asdict()
        else:
            attempts["lost" if letter.reason == "poison" else "failed"] = letter.runs
        error = f"{letter.reason}: {letter.error}"
        return {"where": place, "at": letter.failed_at, "error": error, "attempts": attempts, "until": until}

    def _describe_carrier(self, carrier: CarrierMessage, which: DeliveryKey) -> str:
        place = _describe_place(carrier)
        if carrier.where == "aside" and which in self.held:
            place = f"queue {carrier.queue}, set aside until {self.held[which]}"
        if carrier.where == "aside" and self.halted:
            place = f"queue {carrier.queue}, set aside until the topic is resumed (bridge resume {self.topic})"
        return f"{place}; dead ({carrier.dead}), and Kafka has not taken its dead letter yet" if carrier.dead else place


def _describe_place(carrier: CarrierMessage) -> str:
    match carrier.where:
        case "waiting":
            until = f" until {format_time(carrier.due, 'milliseconds')}" if carrier.due else ""
            return f"queue {carrier.queue}, waits{until}"
        case "taken":
            return f"queue {carrier.queue}, taken by a worker: it runs or is next"
        case "aside":
            return f"queue {carrier.queue}, set aside until its dependency works again (bridge status)"
    return f"queue {carrier.queue}"
