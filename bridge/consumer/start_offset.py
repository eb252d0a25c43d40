"""The offset at which a partition begins: from the log, the commit, and what the ledger knows or has lost."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.log_identity import CommitEvidence
from bridge.formats.delivery_identity import Place
from bridge.ledger import Account, Accounts, Fate, Ledger, Mark
from bridge.ledger.account_progress import AccountProgress, LogKey
from bridge.ledger.fate_pages import PAGE
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Offsets of one look at the ledger.
LOOK: Final = 32 * PAGE


#: Why something below a consumer's commit is to be read, a clause.
_BY_A_CONSUMER: Final = (
    "a consumer that is no bridge has read and committed with this group's id, which is no reason to skip anything "
    "(`bridge reset` is the way to skip)"
)


class CommittedOffset(NamedTuple):
    """What the group has committed on a partition.

    Attributes:
        offset: `None` if nothing.
        epoch: the ledger that this commit rests on; `None` if it was not a bridge that committed.
        said: what it says of the log.
    """

    offset: int | None
    epoch: str | None
    said: CommitEvidence

    @property
    def is_external(self) -> bool:
        """Whether another program than a bridge made it, on this log."""
        of_a_bridge = self.epoch is not None or self.said.log is not None
        return self.offset is not None and self.offset == self.said.offset and not of_a_bridge

    @property
    def is_of_a_consumer(self) -> bool:
        """Whether a consumer made it, which read what lies below and may have handled none of it.

        Consumers say the leader epoch of what they read; tools that move the offsets of a group have read nothing.
        """
        return self.is_external and self.said.epoch >= 0


class LogRange(NamedTuple):
    """The first offset that Kafka has, and one more than the last."""

    low: int
    high: int


class StartOffsetFinder:
    """Finds out where reading begins, a look at the ledger at a time.

    Each of these raises LedgerUnavailable where Redis does not answer.
    """

    def __init__(
        self, settings: Settings, assignment: Assignment, ledger: Ledger | None, logs: LogChangeDetector
    ) -> None:
        self._settings, self._assignment, self._ledger, self._logs = settings, assignment, ledger, logs
        self._by_log: Mapping[LogKey, Collection[Account]] | None = None

    def anew(self) -> None:
        """Partitions are to begin: who had them until now may have noted something since the last ones began."""
        self._by_log = None

    def first(self, place: Place, committed: int | None, log: LogRange) -> int:
        """Where the group is; if it has committed nothing, or Kafka forgot it, as far as the ledger knows."""
        if committed is None and self._ledger is not None:
            accounts = list(self._assignment.make_partition(place, 0).accounts.values())
            reached = Accounts(self._ledger).reached(accounts, self._everyone)
            if reached is not None and reached <= log.high:
                if reached > log.low:
                    logger.warning("%s-%d: Kafka has no commit of the group; the ledger has: %d.", *place, reached)
                committed = reached
        if committed is None:
            # What was parked before this group was here is its own all the same.
            parked = isinstance(self._assignment.make_partition(place, 0), RetryPartition)
            latest = not parked and self._settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
            return log.high if latest else log.low
        return max(committed, log.low)

    def looks(self, place: Place, committed: CommittedOffset, log: LogRange, first: int) -> Iterator[int | None]:
        """Yield the offset at which reading begins; before it, `None` for each look at the ledger."""
        yield from self._expired(place, committed.offset, log)
        if self._ledger is None:
            yield first
            return
        before = self._ledger.state()
        made = self._assignment.make_partition(place, first)
        accounts = list(made.accounts.values())
        back = self._went_back_to(made, accounts, committed, first)
        if committed.is_external and not committed.is_of_a_consumer and not isinstance(made, RetryPartition):
            yield from self._discard_passed(made, accounts, log, first)
        known = dict(zip(accounts, Accounts(self._ledger).known(accounts), strict=True))
        starts: list[int] = []
        for account in accounts:
            for found in _find_starts(self._ledger, account, made.offsets.unsafe, log, first, back):
                if found is None:
                    yield None
                else:
                    starts.append(found)
        start = min(starts, default=first)
        if back < first:
            start = min(start, max(back, log.low))
        reached = dict.fromkeys(accounts, min(start, first))
        if doubt := Accounts(self._ledger).reach(reached, before).doubt(before):
            logger.warning("%s-%d: looked at anew: %s.", *place, doubt)
            yield from self.looks(place, committed, log, first)
            return
        if start > first:
            logger.info("%s-%d: offsets %d to %d are settled: skipped.", *place, first, start - 1)
        elif start < first:
            logs = {account[1:] for account in accounts}
            others = [each for log_key in logs for each in self._everyone().get(log_key, ()) if each not in known]
            known |= zip(others, Accounts(self._ledger).known(others), strict=True)
            why = _BY_A_CONSUMER if committed.is_of_a_consumer else _explain_reread(known, starts, start, first)
            logger.warning("%s-%d: %s. Read again from there: below the committed %d.", *place, why, first)
        yield start

    def _discard_passed(self, made: Partition, accounts: list[Account], log: LogRange, first: int) -> Iterator[None]:
        """Discard what an external commit has passed over, as `bridge reset` does; `None` for each look at the ledger.

        Kafka lets nobody move the offsets of a group that has members: who did it wanted to skip what lies below.
        """
        assert self._ledger is not None
        # What is open below that was lost, or is a handler's that was away: no commit has passed over it.
        reached = Accounts(self._ledger).reached(accounts, self._everyone) or 0
        for account in accounts:
            (known,) = Accounts(self._ledger).known([account])
            # One that is new begins here: nothing of it was passed over.
            begins = first if known.joined is None else max(known.joined, log.low, reached)
            passed: list[range] = []
            for at in range(begins, first, LOOK):
                runs = list(self._ledger.runs(account, {Fate.OPEN}, at, min(first, at + LOOK) - 1))
                self._ledger.write([Mark(account, run, Fate.DISCARDED) for run in runs])
                passed += runs
                yield None
            if passed:
                logger.warning(
                    "%s-%d: offset %d was committed by another program than a bridge, and passes over %d deliveries of "
                    "%s that had not run, from offset %d on: they are discarded. `bridge redrive %s --partition %d "
                    "--from %d --to %d --handler %s --again` runs them; `bridge reset` is the way to move offsets.",
                    *made.place,
                    first,
                    sum(map(len, passed)),
                    account.handler,
                    passed[0].start,
                    *made.place,
                    passed[0].start,
                    first,
                    account.handler,
                )

    def _everyone(self) -> Mapping[LogKey, Collection[Account]]:
        """Every account by its log, read once for all partitions that were assigned together."""
        assert self._ledger is not None
        if self._by_log is None:
            self._by_log = Accounts(self._ledger).by_log()
        return self._by_log

    def _expired(self, place: Place, committed: int | None, log: LogRange) -> Iterator[None]:
        """Count what Kafka's retention took before anything became of it; `None` for each look at the ledger."""
        if committed is None or committed >= log.low:
            return
        accounts = list(self._assignment.make_partition(place, committed).accounts.values())
        open_ = dict.fromkeys(accounts, log.low - committed if self._ledger is None else 0)
        if self._ledger is not None:
            for account in accounts:
                for at in range(committed, log.low, LOOK):
                    found = self._ledger.count(account, at, min(log.low, at + LOOK) - 1)
                    open_[account] += found.fates[Fate.OPEN] + found.pageless
                    yield None
        self._logs.expired(place, committed, log.low, max(open_.values(), default=0))

    def _went_back_to(self, made: Partition, accounts: list[Account], committed: CommittedOffset, first: int) -> int:
        """The first offset below the committed one of which the ledger has lost that it was committed.

        It says before each commit how far the commit will go. One that says less went back: what it had seen
        since is to be read again. One that is another than at the commit was wiped, and one that never heard of the
        partition is older than that: nothing is known of what lies below. With commit="completion" all of it was
        settled, else what was queued is lost.
        """
        assert self._ledger is not None
        if committed.offset is None or committed.epoch is None or not accounts:
            return first
        known = Accounts(self._ledger)
        wiped = committed.epoch != self._ledger.state().epoch
        reached = None if wiped else known.reached(accounts, self._everyone)
        if reached is not None:
            return min(first, reached)
        if made.chosen.commit == "handoff":
            known.lose(accounts, committed.offset)
            _log_lost_fates(made, committed.offset, wiped)
        return first


def _explain_reread(known: Mapping[Account, AccountProgress], starts: Sequence[int], start: int, first: int) -> str:
    """Why something below the committed offset is to be read, a clause: what is not known is not claimed.

    Parameters:
        known: what the ledger knew of the partition's accounts, of handlers that are not imported among them.
        starts: where each of the imported handlers begins, in the order of `known`.
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


def _log_lost_fates(made: Partition, below: int, wiped: bool) -> None:
    # Below the first of all nothing was handed off.
    if below:
        logger.error(
            "%s-%d: %s: what was handed off below offset %d and not handled is lost; `bridge reset%s` reads it again.",
            *made.place,
            "the ledger was wiped" if wiped else "the ledger was set back to before it knew of this partition",
            below,
            f" {made.source}" if isinstance(made, RetryPartition) else "",
        )


def _find_starts(
    ledger: Ledger, account: Account, unsafe: frozenset[Fate], log: LogRange, first: int, back: int
) -> Iterator[int | None]:
    """Yield the first offset of which something is left to do: below the committed one, if the ledger went back."""
    # A handler that a ledger which went back does not know may have been there all the time since.
    joined = Accounts(ledger).join(account, back)
    for at in range(max(joined, log.low), first, LOOK):
        found = next(ledger.runs(account, {Fate.OPEN}, at, min(first, at + LOOK) - 1), None)
        if found is not None:
            yield found.start
            return
        yield None
    # A gap too: it is inferred from what Kafka left out, and a record may lie there after all.
    for at in range(first, log.high, LOOK):
        unsettled = ledger.find(account, unsafe | {Fate.GAP}, at, min(log.high, at + LOOK) - 1)
        if unsettled is not None:
            yield unsettled
            return
        yield None
    yield max(first, log.high)
