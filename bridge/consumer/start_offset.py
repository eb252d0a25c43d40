"""The start offset of a partition, found from the log, the commit and the ledger, also after the ledger lost data."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.log_identity import CommitEvidence
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.ledger import Account, Accounts, Fate, Ledger, Mark
from bridge.ledger.account_progress import AccountProgress, LogKey
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
    """The search for the start offset of a partition, in steps.

    Each method raises LedgerUnavailable if Redis does not respond.
    """

    def __init__(
        self, settings: Settings, assignment: Assignment, ledger: Ledger | None, logs: LogChangeDetector
    ) -> None:
        self._settings, self._assignment, self._ledger, self._logs = settings, assignment, ledger, logs
        self._by_log: Mapping[LogKey, Collection[Account]] | None = None

    def forget_accounts(self) -> None:
        """Forget the accounts that were read, because the former owners of new partitions may have changed them."""
        self._by_log = None

    def choose_first_offset(self, place: Place, committed: int | None, log: LogRange) -> int:
        """Return the committed offset; if Kafka has none, the ledger's, or the end that `auto.offset.reset` names."""
        if committed is None and self._ledger is not None:
            accounts = list(self._assignment.make_partition(place, 0).accounts.values())
            reached = Accounts(self._ledger).read_reached(accounts, self._read_accounts_by_log)
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

    def search_start(self, place: Place, committed: CommittedOffset, log: LogRange, first: int) -> Iterator[int | None]:
        """Yield `None` for each step of the search, and then the start offset."""
        yield from self._count_expired(place, committed.offset, log)
        if self._ledger is None:
            yield first
            return
        before = self._ledger.state()
        partition = self._assignment.make_partition(place, first)
        accounts = list(partition.accounts.values())
        back = self._find_forgotten_offset(partition, accounts, committed, first)
        if committed.is_external and not committed.is_of_a_consumer and not isinstance(partition, RetryPartition):
            yield from self._discard_passed(partition, accounts, log, first)
        yield from self._note_queued_below(partition, accounts, committed, log, first)
        known = dict(zip(accounts, Accounts(self._ledger).read_progress(accounts), strict=True))
        starts: list[int] = []
        for account in accounts:
            for step in _find_starts(self._ledger, account, partition.offsets.unsafe, log, first, back):
                if step is None:
                    yield None
                else:
                    starts.append(step)
        start = min(starts, default=first)
        if back < first:
            start = min(start, max(back, log.low))
        reached = dict.fromkeys(accounts, min(start, first))
        if doubt := Accounts(self._ledger).raise_reached(reached, before).doubt(before):
            logger.warning("%s-%d: the start offset is searched again: %s.", *place, doubt)
            yield from self.search_start(place, committed, log, first)
            return
        if start > first:
            logger.info("%s-%d: offsets %d to %d are settled: skipped.", *place, first, start - 1)
        elif start < first:
            logs = {account[1:] for account in accounts}
            others = [
                account
                for log_key in logs
                for account in self._read_accounts_by_log().get(log_key, ())
                if account not in known
            ]
            known |= zip(others, Accounts(self._ledger).read_progress(others), strict=True)
            why = _BY_A_CONSUMER if committed.is_of_a_consumer else _explain_reread(known, starts, start, first)
            logger.warning("%s-%d: %s. Read again from there: below the committed %d.", *place, why, first)
        yield start

    def _note_queued_below(
        self, partition: Partition, accounts: list[Account], committed: CommittedOffset, log: LogRange, first: int
    ) -> Iterator[None]:
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
    ) -> Iterator[None]:
        """Discard the deliveries that an external commit skipped, as `bridge reset` does; yield `None` for each step.

        Kafka moves no offsets of a group that has members, so this commit was a decision to skip the records below it.
        """
        assert self._ledger is not None
        # Open deliveries below `reached` were lost, or are of a handler that was absent: no commit skipped them.
        reached = Accounts(self._ledger).read_reached(accounts, self._read_accounts_by_log) or 0
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

    def _count_expired(self, place: Place, committed: int | None, log: LogRange) -> Iterator[None]:
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
        self, partition: Partition, accounts: list[Account], committed: CommittedOffset, first: int
    ) -> int:
        """Return the first offset below the commit that the ledger has forgotten, or the commit if there is none.

        Before each commit, the bridge writes its offset to the ledger. If the ledger has a lower one, it was set back,
        and the records since then are read again. If it is another ledger, or does not know the partition, nothing is
        known below the commit: if that was made with commit="completion", all deliveries there were settled, else
        queued ones are lost.
        """
        assert self._ledger is not None
        if committed.offset is None or committed.epoch is None or not accounts:
            return first
        known = Accounts(self._ledger)
        wiped = committed.epoch != self._ledger.state().epoch
        reached = None if wiped else known.read_reached(accounts, self._read_accounts_by_log)
        if reached is not None:
            return min(first, reached)
        if (committed.mode or partition.chosen.commit) == "handoff":
            known.lose(accounts, committed.offset)
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
    ledger: Ledger, account: Account, unsafe: frozenset[Fate], log: LogRange, first: int, back: int
) -> Iterator[int | None]:
    """Yield `None` for each step, then the first offset with work left; it may be below the commit."""
    # A ledger that was set back may not know a handler that has run all the time since.
    joined = Accounts(ledger).join(account, back)
    for first_of_step in range(max(joined, log.low), first, STEP):
        open_run = next(ledger.runs(account, {Fate.OPEN}, first_of_step, min(first, first_of_step + STEP) - 1), None)
        if open_run is not None:
            yield open_run.start
            return
        yield None
    # Gaps too: they were inferred from offsets that Kafka left out, and may have records after all.
    for first_of_step in range(first, log.high, STEP):
        unsettled = ledger.find(account, unsafe | {Fate.GAP}, first_of_step, min(log.high, first_of_step + STEP) - 1)
        if unsettled is not None:
            yield unsettled
            return
        yield None
    yield max(first, log.high)
