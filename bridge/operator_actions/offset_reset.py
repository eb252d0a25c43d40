"""`bridge reset`: the group's committed offsets are moved; with `--again`, settled deliveries from there on run
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from bridge.errors import CannotReset, KafkaUnavailable, NoMoment
from bridge.handler_routes import Routes
from bridge.kafka.clients import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
    admin_client,
    explain_error,
)
from bridge.kafka.consumer_groups import read_members
from bridge.kafka.partition_offsets import Extent, find_offsets_at, read_extents
from bridge.kafka.topic_names import DerivedTopics, TopicNames
from bridge.ledger import Account, Accounts, Fate, Ledger, LogHistory, Mark
from bridge.ledger.fate_rules import find_fate_runs
from bridge.ledger.group_access import open_ledger
from bridge.ledger.ledger_layout import PAGE
from bridge.ledger.unaccounted_offsets import AuditLine, count_audit_line, find_wiped_end
from bridge.settings import Settings

#: Seconds to wait for one answer of Kafka.
ANSWER_WITHIN: Final = 10.0
#: Offsets of one read from the ledger.
PAGES: Final = 8 * PAGE
OPEN_FATES: Final = frozenset({Fate.OPEN})


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A partition whose committed offset is to be moved.

    Attributes:
        discarded: the number of skipped deliveries without a fate, over all handlers.
        records: the number of records between the new offset and the end.
        released: the audit of each handler that misses offsets below the new one: no audit reports these afterwards.
    """

    partition: int
    before: int | None
    after: int
    discarded: int
    records: int
    released: Sequence[AuditLine] = ()


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The plan of a reset, shown before it is applied."""

    topic: str
    moves: list[OffsetMove]
    extents: list[Extent]

    @property
    def discarded(self) -> int:
        """The number of deliveries that are discarded."""
        return sum(move.discarded for move in self.moves)

    @property
    def records(self) -> int:
        """The number of records from the new offsets on; settled deliveries of them are skipped."""
        return sum(move.records for move in self.moves)


def plan_reset(settings: Settings, routes: Routes, topic: str, to: str) -> ResetPlan:
    """Return the plan of a reset; nothing is changed.

    Parameters:
        to: `earliest`, `latest`, an offset, or a time as ISO 8601.

    Raises:
        CannotReset: a bridge runs, the topic does not exist, or `to` cannot be read.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    if (
        belongs := DerivedTopics(TopicNames.from_settings(settings), routes.topics).find_derived([topic]).get(topic)
    ) is not None:
        raise CannotReset(
            f"{topic!r} is the {belongs.kind} topic of {belongs.source!r}: its records run when they are due, and "
            f"their fates belong to the source topic. Reset {belongs.source!r}."
        )
    extents = read_extents(settings, [topic])
    if not extents:
        raise CannotReset(f"topic {topic!r} does not exist.")
    try:
        targets = find_offsets_at(settings, extents, to)
    except NoMoment as error:
        raise CannotReset(str(error)) from None
    _check_stopped(settings)
    skipped = _find_skipped(settings, routes, topic, extents, targets)
    moves = [
        OffsetMove(extent.partition, extent.committed, target, own.discarded, max(0, extent.end - target), own.released)
        for extent in extents
        for target, own in ((targets[extent.partition], skipped[extent.partition]),)
    ]
    return ResetPlan(topic, moves, extents)


def apply_reset(settings: Settings, routes: Routes, plan: ResetPlan, *, again: bool) -> None:
    """Move the committed offset of every partition of a topic, as planned. All bridges of the group must be stopped.

    Parameters:
        again: forget the fates from the new offset on, so that done deliveries run again, too. Without it, settled
            deliveries are skipped. Deliveries between the old offset and a later new one are discarded.

    Raises:
        CannotReset: a bridge has been started.
        KafkaUnavailable, LedgerUnavailable: one of them does not answer.
    """
    targets = {move.partition: move.after for move in plan.moves}
    _check_stopped(settings)
    # Fates first: with moved offsets and no fates, skipped deliveries would run, and a second try would not see them.
    _write_fates(settings, routes, plan.topic, plan.extents, targets, again)
    _move(settings, plan.topic, targets)


class _Skipped(NamedTuple):
    """The deliveries below a new offset: how many are discarded, and the audit of those that are let go."""

    discarded: int
    released: Sequence[AuditLine] = ()


def _find_skipped(
    settings: Settings, routes: Routes, topic: str, extents: list[Extent], targets: dict[int, int]
) -> dict[int, _Skipped]:
    """Return by partition the deliveries that the new offset passes over."""
    handlers = len(routes.of(topic))
    if settings.ledger_url is None:
        return {
            extent.partition: _Skipped(max(0, targets[extent.partition] - _begin(extent)) * handlers)
            for extent in extents
        }
    skipped = {}
    with open_ledger(settings, [topic]) as (ledger, catalog):
        for extent in extents:
            log = LogHistory(ledger).log_id(topic, catalog.topic_ids[topic], extent.partition)
            accounts = [Account(handler.name, topic, log, extent.partition) for handler in routes.of(topic)]
            target, wiped = targets[extent.partition], find_wiped_end(settings, ledger, extent, accounts)
            counts = [ledger.count(account, _begin(extent), target - 1) for account in accounts]
            skipped[extent.partition] = _Skipped(
                sum(count.fates[Fate.OPEN] + count.pageless for count in counts),
                find_released(ledger, accounts, extent, target, wiped),
            )
    return skipped


def find_released(
    ledger: Ledger, accounts: Sequence[Account], extent: Extent, target: int, wiped_below: int = 0
) -> list[AuditLine]:
    """Return the audit of each handler that misses committed offsets below a new one.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    below = max(extent.first, min(target, extent.committed or 0))
    cut = replace(extent, end=below, committed=None if extent.committed is None else min(below, extent.committed))
    lines = [count_audit_line(ledger, account, cut, wiped_below=wiped_below) for account in accounts]
    return [line for line in lines if line.missing]


def _begin(extent: Extent) -> int:
    return max(extent.first, extent.committed or 0)


def _check_stopped(settings: Settings) -> None:
    """Require that no bridge runs: its ledger must not change under it.

    Raises:
        CannotReset: the group has members.
        KafkaUnavailable: its coordinator did not answer.
    """
    try:
        members = read_members(settings, settings.group, 2 * ANSWER_WITHIN)
    except KafkaUnavailable as error:
        raise KafkaUnavailable(
            f"Kafka did not say whether a bridge of group {settings.group!r} runs: {error} Nothing has changed; try "
            "again when it answers."
        ) from None
    if members.size:
        raise _running(settings)


def _running(settings: Settings) -> CannotReset:
    return CannotReset(
        f"a bridge of group {settings.group!r} runs: stop all of them, then try again "
        "(one that was killed counts until its session has timed out)."
    )


def _move(settings: Settings, topic: str, targets: dict[int, int]) -> None:
    asked = ConsumerGroupTopicPartitions(
        settings.group, [TopicPartition(topic, partition, offset) for partition, offset in targets.items()]
    )
    admin = admin_client(settings.kafka)
    try:
        (future,) = admin.alter_consumer_group_offsets([asked]).values()
        answer = future.result(ANSWER_WITHIN)
    except TimeoutError:
        raise KafkaUnavailable("Kafka did not answer the request to move the offsets.") from None
    except KafkaException as error:
        raise _refused(settings, error.args[0]) from None
    for partition in answer.topic_partitions:
        if partition.error is not None:
            raise _refused(settings, partition.error)


def _refused(settings: Settings, error: KafkaError) -> CannotReset:
    if error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
        return _running(settings)
    return CannotReset(f"Kafka did not move the offsets of group {settings.group!r}: {explain_error(error)}.")


def _write_fates(
    settings: Settings, routes: Routes, topic: str, found: list[Extent], targets: dict[int, int], again: bool
) -> None:
    """Discard the skipped deliveries; with `again`, open those from the new offset on."""
    if settings.ledger_url is None:
        return
    with open_ledger(settings, [topic]) as (ledger, catalog):
        for extent in found:
            for handler in routes.of(topic):
                log = LogHistory(ledger).log_id(topic, catalog.topic_ids[topic], extent.partition)
                account = Account(handler.name, topic, log, extent.partition)
                _discard_open(ledger, account, extent, targets[extent.partition])
                Accounts(ledger).accept(account, targets[extent.partition])
                if again and targets[extent.partition] < extent.end:
                    ledger.forget(account, targets[extent.partition], extent.end - 1)


def _discard_open(ledger: Ledger, account: Account, extent: Extent, target: int) -> None:
    for start in range(_begin(extent), target, PAGES):
        fates = ledger.fates(account, start, min(target, start + PAGES) - 1)
        marks = [
            Mark(account, range(start + run.start, start + run.stop), Fate.DISCARDED)
            for run in find_fate_runs(fates, OPEN_FATES)
        ]
        ledger.write(marks)
