"""The start offset of a partition, found from the log, the commit and the ledger, also after the ledger lost data."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bridge.consumer.ledger_questions import (
    FateQuestion,
    JoinNote,
    LedgerAnswers,
    LedgerQuestion,
    LedgerSearch,
    ProgressQuestion,
    ReachedNote,
    StateQuestion,
)
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.log_identity import CommitEvidence
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.ledger import Account, Accounts, Fate, Ledger, LedgerState, Mark
from bridge.ledger.account_progress import AccountProgress, LogKey, find_log_accounts, find_reached
from bridge.ledger.ledger_client import FateSearch
from bridge.ledger.ledger_layout import PAGE
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Offsets of one step of a search in the ledger.
STEP: Final = 32 * PAGE

#: Why records below the commit of a consumer that is no bridge are read; a clause of a log line.
_BY_A_CONSUMER: Final = (
    "a consumer that is no bridge has read and committed with this group's id, which is no reason to skip anything "
    "(`bridge reset` is the way to skip)"
)


class CommittedOffset(NamedTuple):
    """The committed offset of a partition.

    Attributes:
        offset: `None` if nothing is committed.
        epoch: the ledger that the commit depends on; `None` if no bridge committed it.
        evidence: the identity of the log at the time of the commit.
        mode: `handoff` or `completion`; `None` if the commit does not say.
    """

    offset: int | None
    epoch: str | None
    evidence: CommitEvidence
    mode: str | None = None

    @property
    def is_external(self) -> bool:
        """Return whether another program than a bridge committed it, on this log."""
        of_a_bridge = self.epoch is not None or self.evidence.log is not None
        return self.offset is not None and self.offset == self.evidence.offset and not of_a_bridge

    @property
    def is_of_a_consumer(self) -> bool:
        """Return whether a consumer that is no bridge committed it; that consumer may have handled nothing below.

        Consumers commit the leader epoch of the records that they read; tools that move the offsets of a group do not.
        """
        return self.is_external and self.evidence.epoch >= 0


class LogRange(NamedTuple):
    """The range of a log: the first offset that Kafka has, and one more than the last."""

    low: int
    high: int


class StartOffsetFinder:
    """The search for the start offset of a partition, whose questions are answered with those of other partitions.

    Each method raises LedgerUnavailable if Redis does not respond.
    """

    def __init__(
        self, settings: Settings, assignment: Assignment, ledger: Ledger | None, logs: LogChangeDetector
    ) -> None:
        self._settings, self._assignment, self._ledger, self._logs = settings, assignment, ledger, logs
        self._answers = None if ledger is None else LedgerAnswers(ledger)
        self._by_log: Mapping[LogKey, Collection[Account]] | None = None

    def forget_accounts(self) -> None:
        """Forget the accounts that were read, because the former owners of new partitions may have changed them."""
        self._by_log = None

    def answer(self, questions: Iterable[LedgerQuestion[Any]]) -> None:
        """Answer the questions of searches, those of a kind in one trip; some may stay open until the next call."""
        if self._answers is not None:
            self._answers.answer(questions)

    def read_state(self) -> LedgerSearch[LedgerState | None]:
        """Return the state of the ledger before a search; `None` without a ledger."""
        if self._ledger is None:
            return None
        return (yield from StateQuestion().ask())

    def choose_first_offset(self, place: Place, committed: int | None, log: LogRange) -> LedgerSearch[int]:
        """Return the committed offset; if Kafka has none, the ledger's, or the end that `auto.offset.reset` names."""
        if committed is None and self._ledger is not None:
            accounts = list(self._assignment.make_partition(place, 0).accounts.values())
            reached = yield from self._read_reached(accounts)
            if reached is not None and reached <= log.high:
                if reached > log.low:
                    logger.warning("%s-%d: Kafka has no commit of the group; the ledger has: %d.", *place, reached)
                committed = reached
        if committed is None:
            # Parked records are the group's own, also those from before it read this topic.
            parked = isinstance(self._assignment.make_partition(place, 0), RetryPartition)
            latest = not parked and self._settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
            return log.high if latest else log.low
        return max(committed, log.low)

    def search_start(
        self, place: Place, committed: CommittedOffset, log: LogRange, first: int, before: LedgerState | None
    ) -> LedgerSearch[int | None]:
        """Return the start offset; `None` if the ledger may have lost data, so that all of it is searched again.

        Parameters:
            before: the state of the ledger before anything was read from it.
        """
        yield from self._count_expired(place, committed.offset, log)
        if self._ledger is None or before is None:
            return first
        partition = self._assignment.make_partition(place, first)
        accounts = list(partition.accounts.values())
        back = yield from self._find_forgotten_offset(partition, accounts, committed, first, before)
        if committed.is_external and not committed.is_of_a_consumer and not isinstance(partition, RetryPartition):
            yield from self._discard_passed(partition, accounts, log, first)
        yield from self._note_queued_below(partition, accounts, committed, log, first)
        known = dict(zip(accounts, (yield from ProgressQuestion(accounts).ask()), strict=True))
        starts = yield from _find_starts(accounts, partition.offsets.unsafe, log, first, back)
        start = min(starts, default=first)
        if back < first:
            start = min(start, max(back, log.low))
        reached = dict.fromkeys(accounts, min(start, first))
        if doubt := (yield from ReachedNote(reached, before).ask()).doubt(before):
            logger.warning("%s-%d: the start offset is searched again: %s.", *place, doubt)
            return None
        if start > first:
            logger.info("%s-%d: offsets %d to %d are settled: skipped.", *place, first, start - 1)
        elif start < first:
            others = [each for each in find_log_accounts(self._read_accounts_by_log(), accounts) if each not in known]
            known |= zip(others, (yield from ProgressQuestion(others).ask()), strict=True)
            why = _BY_A_CONSUMER if committed.is_of_a_consumer else _explain_reread(known, starts, start, first)
            logger.warning("%s-%d: %s. Read again from there: below the committed %d.", *place, why, first)
        return start

    def _read_reached(self, accounts: Sequence[Account]) -> LedgerSearch[int | None]:
        """Return how far a partition had come when this ledger last heard of it; `None` if it never did."""
        reached = find_reached((yield from ProgressQuestion(accounts).ask()))
        if reached is None and (others := find_log_accounts(self._read_accounts_by_log(), accounts)):
            reached = find_reached((yield from ProgressQuestion(others).ask()))
        return reached

    def _note_queued_below(
        self, partition: Partition, accounts: list[Account], committed: CommittedOffset, log: LogRange, first: int
    ) -> LedgerSearch[None]:
        """Note if deliveries are queued below the commit since an earlier commit="handoff"; yield for each step."""
        assert self._ledger is not None
        if not may_have_queued_below(partition.chosen.commit, committed.mode):
            return
        for account in accounts:
            # Also below `joined`, which moves up when pages expire.
            for first_of_step in range(log.low, first, STEP):
                last = min(first, first_of_step + STEP) - 1
                if next(self._ledger.runs(account, {Fate.HANDED}, first_of_step, last), None) is not None:
                    self._assignment.note_queued_below(partition.place)
                    return
                yield None

    def _discard_passed(
        self, partition: Partition, accounts: list[Account], log: LogRange, first: int
    ) -> LedgerSearch[None]:
        """Discard the deliveries that an external commit skipped, as `bridge reset` does; yield `None` for each step.

        Kafka moves no offsets of a group that has members, so this commit was a decision to skip the records below it.
        """
        assert self._ledger is not None
        # Open deliveries below `reached` were lost, or are of a handler that was absent: no commit skipped them.
        reached = (yield from self._read_reached(accounts)) or 0
        for account in accounts:
            (known,) = Accounts(self._ledger).read_progress([account])
            # A new handler starts here, so none of its deliveries was skipped.
            begins = first if known.joined is None else max(known.joined, log.low, reached)
            passed: list[range] = []
            for first_of_step in range(begins, first, STEP):
                runs = list(
                    self._ledger.runs(account, {Fate.OPEN}, first_of_step, min(first, first_of_step + STEP) - 1)
                )
                self._ledger.write([Mark(account, run, Fate.DISCARDED) for run in runs])
                passed += runs
                yield None
            if passed:
                logger.warning(
                    "%s-%d: offset %d was committed by another program than a bridge, and passes over %s of "
                    "%s that had not run, from offset %d on: they are discarded. `bridge redrive %s --partition %d "
                    "--from %d --to %d --handler %s --again` runs them; `bridge reset` is the way to move offsets.",
                    *partition.place,
                    first,
                    format_count(sum(map(len, passed)), "delivery"),
                    account.handler,
                    passed[0].start,
                    *partition.place,
                    passed[0].start,
                    first,
                    account.handler,
                )

    def _read_accounts_by_log(self) -> Mapping[LogKey, Collection[Account]]:
        """Return every account by its log, read once for all partitions that were assigned together."""
        assert self._ledger is not None
        if self._by_log is None:
            self._by_log = Accounts(self._ledger).by_log()
        return self._by_log

    def _count_expired(self, place: Place, committed: int | None, log: LogRange) -> LedgerSearch[None]:
        """Count the records that Kafka's retention deleted before they were handled; yield `None` for each step."""
        if committed is None or committed >= log.low:
            return
        accounts = list(self._assignment.make_partition(place, committed).accounts.values())
        open_ = dict.fromkeys(accounts, log.low - committed if self._ledger is None else 0)
        if self._ledger is not None:
            for account in accounts:
                for first_of_step in range(committed, log.low, STEP):
                    counts = self._ledger.count(account, first_of_step, min(log.low, first_of_step + STEP) - 1)
                    open_[account] += counts.fates[Fate.OPEN] + counts.pageless
                    yield None
        self._logs.report_expired(place, committed, log.low, max(open_.values(), default=0))

    def _find_forgotten_offset(
        self,
        partition: Partition,
        accounts: list[Account],
        committed: CommittedOffset,
        first: int,
        before: LedgerState,
    ) -> LedgerSearch[int]:
        """Return the first offset below the commit that the ledger has forgotten, or the commit if there is none.

        Before each commit, the bridge writes its offset to the ledger. If the ledger has a lower one, it was set back,
        and the records since then are read again. If it is another ledger, or does not know the partition, nothing is
        known below the commit: if that was made with commit="completion", all deliveries there were settled, else
        queued ones are lost.
        """
        assert self._ledger is not None
        if committed.offset is None or committed.epoch is None or not accounts:
            return first
        wiped = committed.epoch != before.epoch
        reached = None if wiped else (yield from self._read_reached(accounts))
        if reached is not None:
            return min(first, reached)
        if (committed.mode or partition.chosen.commit) == "handoff":
            Accounts(self._ledger).lose(accounts, committed.offset)
            _log_lost_fates(partition, committed.offset, wiped)
        return first


def may_have_queued_below(setting: str, noted: str | None) -> bool:
    """Return whether deliveries below a commit may be queued though the topic has commit="completion" now.

    Parameters:
        noted: how the commit says it was made; `None` if it does not say.
    """
    return setting == "completion" and noted != "completion"


def _explain_reread(known: Mapping[Account, AccountProgress], starts: Sequence[int], start: int, first: int) -> str:
    """Return why records below the committed offset are read, a clause.

    Parameters:
        known: the ledger's progress of the partition's accounts, handlers that are not imported included.
        starts: the start of each imported handler, in the order of `known`.
    """
    account, before = next((each for each, at in zip(known.items(), starts, strict=False) if at == start), (None, None))
    if max((each.reached for each in known.values() if each.reached is not None), default=-1) < first:
        return f"the ledger was set back, and knows nothing of offset {start}"
    if account is None or before is None or before.reached is None or before.reached <= start:
        name = "a handler" if account is None else account.handler
        return (
            f"{name} has had nothing from offset {start} on (the group went on without this handler: it was not "
            "imported, or a bridge runs with other settings)"
        )
    return f"the ledger has no fate of offset {start} for {account.handler}"


def _log_lost_fates(partition: Partition, below: int, wiped: bool) -> None:
    # Below offset 0 there are no deliveries.
    if below:
        logger.error(
            "%s-%d: %s: deliveries handed off below offset %d and not handled are lost; `bridge reset%s` runs them "
            "again.",
            *partition.place,
            "the ledger was wiped" if wiped else "the ledger was set back to before it knew of this partition",
            below,
            f" {partition.source}" if isinstance(partition, RetryPartition) else "",
        )


def _find_starts(
    accounts: Sequence[Account], unsafe: frozenset[Fate], log: LogRange, first: int, back: int
) -> LedgerSearch[list[int]]:
    """Return the first offset with work left for each account; it may be below the commit."""
    # A ledger that was set back may not know a handler that has run all the time since.
    joined = yield from JoinNote(accounts, back).ask()
    starts = dict.fromkeys(accounts, max(first, log.high))
    left = {
        account: _list_searches(account, unsafe, max(at, log.low), first, log.high)
        for account, at in zip(accounts, joined, strict=True)
    }
    while asked := {account: search for account, more in left.items() if (search := next(more, None)) is not None}:
        found = dict(zip(asked, (yield from FateQuestion([*asked.values()]).ask()), strict=True))
        starts |= {account: offset for account, offset in found.items() if offset is not None}
        left = {account: left[account] for account, offset in found.items() if offset is None}
    return [*starts.values()]


def _list_searches(
    account: Account, unsafe: frozenset[Fate], begin: int, first: int, high: int
) -> Iterator[FateSearch]:
    """Yield the steps of the search for the first offset with work left, in order (pure)."""
    for first_of_step in range(begin, first, STEP):
        last = min(first, first_of_step + STEP) - 1
        yield FateSearch(account, {Fate.OPEN}, first_of_step, last, pageless=False)
    # Gaps too: they were inferred from offsets that Kafka left out, and may have records after all.
    for first_of_step in range(first, high, STEP):
        yield FateSearch(account, unsafe | {Fate.GAP}, first_of_step, min(high, first_of_step + STEP) - 1)
