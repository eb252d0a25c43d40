"""From which offset a partition is read: what Kafka has, what is committed, and what the ledger knows or has lost."""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from bridge.ledger import Account, Accounts, Fate, Ledger
from bridge.ledger.pages import PAGE
from bridge.loop.log_check import Logs
from bridge.loop.log_identity import Said
from bridge.partitions.assignment import Assignment
from bridge.partitions.parked import ParkedPartition
from bridge.partitions.partition import Partition
from bridge.records.place import Place
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Offsets of one look at the ledger.
LOOK: Final = 32 * PAGE


class Committed(NamedTuple):
    """What the group has committed on a partition.

    Attributes:
        offset: `None` if nothing.
        epoch: the ledger that this commit rests on; `None` if it was not a bridge that committed.
        said: what it says of the log.
    """

    offset: int | None
    epoch: str | None
    said: Said


class Log(NamedTuple):
    """The first offset that Kafka has, and one more than the last."""

    low: int
    high: int


class Starts:
    """Finds out where reading begins, a look at the ledger at a time.

    Each of these raises LedgerUnavailable where Redis does not answer.
    """

    def __init__(self, settings: Settings, assignment: Assignment, ledger: Ledger | None, logs: Logs) -> None:
        self._settings, self._assignment, self._ledger, self._logs = settings, assignment, ledger, logs

    def first(self, place: Place, committed: int | None, log: Log) -> int:
        """Where the group is; if it has committed nothing, or Kafka forgot it, as far as the ledger knows."""
        if committed is None and self._ledger is not None:
            accounts = list(self._assignment.made(place, 0).accounts.values())
            reached = Accounts(self._ledger).reached(accounts)
            if reached is not None and reached <= log.high:
                if reached > log.low:
                    logger.warning("%s-%d: Kafka has no commit of the group; the ledger has: %d.", *place, reached)
                committed = reached
        if committed is None:
            # What was parked before this group was here is its own all the same.
            parked = isinstance(self._assignment.made(place, 0), ParkedPartition)
            latest = not parked and self._settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
            return log.high if latest else log.low
        return max(committed, log.low)

    def looks(self, place: Place, committed: Committed, log: Log, first: int) -> Iterator[int | None]:
        """Yield the offset at which reading begins; before it, `None` for each look at the ledger."""
        yield from self._expired(place, committed.offset, log)
        if self._ledger is None:
            yield first
            return
        before = self._ledger.state()
        made = self._assignment.made(place, first)
        accounts = list(made.accounts.values())
        back = self._went_back_to(made, accounts, committed, first)
        starts = []
        for account in accounts:
            for found in _starts_of(self._ledger, account, made.offsets.unsafe, log, first, back):
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
            logger.warning(
                "%s-%d: the ledger has lost what became of offset %d, below the committed %d: read again from there.",
                *place,
                start,
                first,
            )
        yield start

    def _expired(self, place: Place, committed: int | None, log: Log) -> Iterator[None]:
        """Count what Kafka's retention took before anything became of it; `None` for each look at the ledger."""
        if committed is None or committed >= log.low:
            return
        accounts = list(self._assignment.made(place, committed).accounts.values())
        open_ = dict.fromkeys(accounts, log.low - committed if self._ledger is None else 0)
        if self._ledger is not None:
            for account in accounts:
                for at in range(committed, log.low, LOOK):
                    found = self._ledger.count(account, at, min(log.low, at + LOOK) - 1)
                    open_[account] += found.fates[Fate.OPEN] + found.pageless
                    yield None
        self._logs.expired(place, committed, log.low, max(open_.values(), default=0))

    def _went_back_to(self, made: Partition, accounts: list[Account], committed: Committed, first: int) -> int:
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
        reached = None if wiped else known.reached(accounts)
        if reached is not None:
            return min(first, reached)
        if made.chosen.commit == "handoff":
            known.lose(accounts, committed.offset)
            _say_lost(made, committed.offset, wiped)
        return first


def _say_lost(made: Partition, below: int, wiped: bool) -> None:
    # Below the first of all nothing was handed off.
    if below:
        logger.error(
            "%s-%d: %s: what was handed off below offset %d and not handled is lost; `bridge reset%s` reads it again.",
            *made.place,
            "the ledger was wiped" if wiped else "the ledger was set back to before it knew of this partition",
            below,
            f" {made.source}" if isinstance(made, ParkedPartition) else "",
        )


def _starts_of(
    ledger: Ledger, account: Account, unsafe: frozenset[Fate], log: Log, first: int, back: int
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
