"""The trace of the deliveries of some records: fates and times that the ledger has, and the records of retry topics
that hold them.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from bridge.dispatch.carrier_message import DeliveryKey
from bridge.formats.group_decision import GroupDecision
from bridge.formats.retry_record import RetryRecord, read_retry_record
from bridge.handler_routes import Routes
from bridge.inspection.group_access import open_ledger
from bridge.inspection.topic_audit import wiped_below
from bridge.kafka.clients import Record
from bridge.kafka.partition_offsets import Extent
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Account, Accounts, Fate, KnownLog, Ledger, LogHistory
from bridge.ledger.decision_store import DecisionMirror, look_up_decisions
from bridge.ledger.handoff_times import STEP_SECONDS, find_handoff_times
from bridge.ledger.retry_records import ParkedSearch, UnsettledRecord
from bridge.ledger.task_notes import find_noted_tasks, name_single_task
from bridge.settings import Settings

#: Records by partition and offset; of one that is gone nothing is known.
RecordsByPlace = Mapping[tuple[int, int], Record | None]
#: Whose fate at which offset is asked for.
AskedDeliveries = Sequence[tuple[Account, int]]


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """What was found.

    Attributes:
        handlers: whose deliveries they are.
        fates: of each delivery.
        logs: the id of each partition's log.
        since: when those were handed off that are under way, about.
        before: those that began before their handler did.
        forgotten: those that were committed on the ground of a ledger that is no more.
        ran: the Celery tasks in which those ended that have, as far as it is certain.
        parked: the records of retry and replay topics in which those lie that are parked, and what these hold.
        decided: what is in force for the group.
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
    def under_way(self) -> set[DeliveryKey]:
        """Those that a Celery message carries, or should."""
        handed = {which for which, fate in self.fates.items() if fate is Fate.HANDED}
        parked = {which for which, fate in self.fates.items() if fate is Fate.PARKED}
        # Of a topic that is gone no record is found, and what it had handed off is on its way all the same.
        return handed | {w for w in parked if w not in self.parked or self.parked[w][0].fate is Fate.HANDED}


def trace_deliveries(
    settings: Settings, routes: Routes, topic: str, found: RecordsByPlace, there: Sequence[Extent]
) -> DeliveryTrace:
    """Ask for the deliveries of some records of one topic.

    Parameters:
        there: the topic's partitions.

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
            _parked(ParkedSearch(settings, ledger, catalog, topic), {account for account, _ in asked}, fates),
            look_up_decisions(settings, DecisionMirror(ledger)),
        )


def _handlers(ledger: Ledger, catalog: TopicCatalog, routes: Routes, topic: str) -> list[str]:
    """Those of the topic, and behind them those that it had."""
    names = [handler.name for handler in routes.of(topic)]
    wanted = (topic, catalog.topic_ids.get(topic, ""))
    everyone = Accounts(ledger).everyone()
    had = {each.handler for each in everyone if (each.topic, KnownLog.of(each.topic_id).topic_id) == wanted}
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
    """What a handler does not get: it began above, or never on that partition though others had the record."""
    accounts = list({account for account, _ in asked})
    joined = {account: each.joined for account, each in zip(accounts, Accounts(ledger).known(accounts), strict=True)}
    had = {which[:2] for which, fate in fates.items() if fate is not Fate.OPEN}
    return frozenset(
        _which(account, offset)
        for account, offset in asked
        if ((account.partition, offset) in had if (first := joined[account]) is None else offset < first)
    )


def _forgotten(
    settings: Settings, ledger: Ledger, routes: Routes, there: Iterable[Extent], asked: AskedDeliveries
) -> frozenset[DeliveryKey]:
    """What lies below what was handed off with a ledger that is no more, as the audit counts it."""
    accounts = list({account for account, _ in asked})
    lost = {account: each.lost or 0 for account, each in zip(accounts, Accounts(ledger).known(accounts), strict=True)}
    for extent in there:
        ours = [a for a in accounts if a.partition == extent.partition and a.handler in routes.handlers]
        wiped = wiped_below(settings, ledger, extent, ours)
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
    """About when those were handed off that are under way."""
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
    """When something was handed off of which the step of ten seconds is known: not before it was produced (pure)."""
    return step if produced is None else max(step, min(produced, step + STEP_SECONDS))


def _ended_tasks(
    ledger: Ledger, routes: Routes, asked: AskedDeliveries, fates: Mapping[DeliveryKey, Fate]
) -> dict[DeliveryKey, str]:
    """The Celery tasks in which those ended that have, as far as it is certain."""
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
    """The record's own time (Unix time), if it has one."""
    kind, at = record.timestamp() if record is not None else (0, 0)
    return at / 1000 if kind else None


def _parked(
    search: ParkedSearch, accounts: Container[Account], fates: Mapping[DeliveryKey, Fate]
) -> dict[DeliveryKey, tuple[UnsettledRecord, RetryRecord]]:
    """Of those that are parked, the records in which they lie."""
    wanted = {which for which, fate in fates.items() if fate is Fate.PARKED}
    if not wanted:
        return {}
    found = {}
    for lies in search.look():
        which = (lies.origin.partition, lies.origin.offset, lies.origin.handler)
        if (
            which in wanted
            and lies.account in accounts
            and (held := read_retry_record(lies.record, "", "")) is not None
        ):
            found[which] = (lies, held)
    return found
