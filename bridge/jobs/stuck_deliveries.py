"""The search for stuck deliveries: handed off long ago, and no task carries them; they are opened again."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.carrier_message import PartitionHandler
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, Mark
from bridge.ledger.handoff_times import narrow_steps, read_step_rests, read_steps
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)


class StuckSuspects:
    """Deliveries that may be stuck. Each method raises LedgerUnavailable when Redis does not answer.

    Parameters:
        after: seconds since the hand-off from which on a delivery that is not settled is suspected.
    """

    def __init__(self, ledger: Ledger, metrics: BridgeMetrics, after: float) -> None:
        self._ledger, self._metrics, self._after = ledger, metrics, after

    def of(self, partition: Partition, handler: str) -> list[int]:
        """Those of one handler on a partition, ascending."""
        found = find_stuck_offsets(self._ledger, partition.accounts[handler], self._after)
        return sorted({offset for each in found for offset in each.offsets})

    def reopen(self, partition: Partition, handler: str, nowhere: Sequence[int]) -> None:
        """Open those whose task is nowhere; where the ledger does not answer they may be open all the same."""
        logger.warning(
            "%s-%d: %d deliveries to %s were handed off over %g s ago and their task is nowhere: again.",
            partition.topic,
            partition.number,
            len(nowhere),
            handler,
            self._after,
        )
        self._ledger.write([Mark(partition.accounts[handler], nowhere, Fate.OPEN)])
        self._metrics.stuck.inc(len(nowhere))


#: Seconds that one slice may take: the bridge hands off between two of them.
SLICE: Final = 0.1
#: Deliveries of one queue that one search looks for; the next goes on behind them.
SUSPECTS: Final = 50_000
#: How much longer than a search the pause after it is; and the part of `stuck_after` that it is at least.
PAUSE_FACTOR: Final = 20
PAUSE_PART: Final = 0.1


class RereadRequest(NamedTuple):
    """A partition that must be read again from an offset on."""

    partition: Partition
    offset: int


class StuckDeliveryFinder:
    """A search after another, each through the queues that may hold what is suspected, and through no other.

    Nothing of it grows with the queue: messages are read in pieces, and only the offsets that are looked for are kept.

    Parameters:
        queues: all that deliveries go to: a record of a retry topic may be that of any handler.
        stuck_after: seconds after which a delivery is suspected: a search begins ten times in them at the most.

    Attributes:
        more: whether there is more to look at at once.
    """

    def __init__(
        self,
        messages: BrokerSearch,
        suspected: StuckSuspects,
        assignment: Assignment,
        stuck_after: float,
        clock: Callable[[], float] = time.monotonic,
        queues: Collection[str] = (),
    ) -> None:
        self._messages, self._suspected, self._assignment = messages, suspected, assignment
        self._stuck_after, self._clock, self._queues = stuck_after, clock, queues
        self._steps: Iterator[RereadRequest | None] | None = None
        self.more = False
        self._next = 0.0
        self._taken = 0.0
        self._read = False
        self._from: dict[PartitionHandler, int] = {}

    def go_on(self) -> Iterator[RereadRequest]:
        """Search for a slice of time, if it is time to.

        Yields:
            what is to be read again, before it is opened: a write whose answer is lost may have been done, and what
            is open already is not found again.

        Raises:
            LedgerUnavailable: the ledger does not answer; the next search begins anew.
        """
        self.more = False
        begun = self._clock()
        if self._steps is None:
            if begun < self._next:
                return
            self._steps, self._taken, self._read = self._search(), 0.0, False
        try:
            for reread in self._steps:
                if reread is not None:
                    yield reread
                elif self._clock() - begun >= SLICE:
                    self.more = True
                    return
        except HandoffFailed as error:
            logger.warning("stuck deliveries could not be looked for: %s", str(error))
        finally:
            self._taken += self._clock() - begun
            if not self.more:
                self._end()

    def _end(self) -> None:
        self._steps = None
        if self._read:
            # What was found there will be there for a while: not the whole queue again in a minute.
            self._next = self._clock() + max(PAUSE_FACTOR * self._taken, PAUSE_PART * self._stuck_after)

    def _search(self) -> Iterator[RereadRequest | None]:
        for queue in sorted({each.queue for partition in self._assignment.partitions for each in partition.handlers}):
            suspects: dict[PartitionHandler, set[int]] = {}
            for partition in list(self._assignment.partitions):
                self._suspect(partition, queue, suspects)
                yield None
            if suspects:
                self._read = True
                yield from self._messages.search(queue, suspects)
            for partition in list(self._assignment.partitions):
                yield from self._reopen(partition, suspects)

        yield from self._search_own()

    def _search_own(self) -> Iterator[RereadRequest | None]:
        """The same for what was handed off of retry and replay topics, through all queues."""
        suspects: dict[PartitionHandler, set[int]] = {}
        for partition in self._assignment.parked:
            self._suspect_of(partition, RETRY_RECORD, suspects)
            yield None
        if not suspects:
            return
        self._read = True
        for queue in sorted(self._queues):
            yield from self._messages.search(queue, suspects)
        for partition in self._assignment.parked:
            if nowhere := sorted(suspects.pop((RETRY_RECORD, *partition.place), ())):
                yield RereadRequest(partition, nowhere[0])
                self._suspected.reopen(partition, RETRY_RECORD, nowhere)

    def _suspect(self, partition: Partition, queue: str, suspects: dict[PartitionHandler, set[int]]) -> None:
        """Add what of this partition may be stuck; one that cannot be looked at stops no other."""
        for handler in partition.handlers:
            if handler.queue == queue:
                self._suspect_of(partition, handler.name, suspects)

    def _suspect_of(self, partition: Partition, handler: str, suspects: dict[PartitionHandler, set[int]]) -> None:
        room = SUSPECTS - sum(map(len, suspects.values()))
        if room <= 0:
            return
        owner = (handler, *partition.place)
        try:
            offsets = self._suspected.of(partition, handler)
        except LedgerUnavailable:
            raise
        except Exception:
            logger.exception("%s-%d: what is stuck could not be looked for.", *partition.place)
            return
        behind = [offset for offset in offsets if offset >= self._from.get(owner, 0)] or offsets
        self._from[owner] = behind[room] if len(behind) > room else 0
        if behind:
            suspects[owner] = set(behind[:room])

    def _reopen(self, partition: Partition, suspects: dict[PartitionHandler, set[int]]) -> Iterator[RereadRequest]:
        for handler in partition.handlers:
            if nowhere := sorted(suspects.pop((handler.name, *partition.place), ())):
                yield RereadRequest(partition, nowhere[0])
                self._suspected.reopen(partition, handler.name, nowhere)


class StuckOffsets(NamedTuple):
    """Offsets handed within ten seconds of `since` (Unix time by Redis's clock) and not settled."""

    since: int
    offsets: Sequence[int]


def find_stuck_offsets(ledger: Ledger, account: Account, seconds: float) -> list[StuckOffsets]:
    """Return what was handed at least `seconds` ago and is still `handed`, oldest first.

    Whether a task still has it is for the caller to see; Mark(account, offsets, Fate.OPEN) then lets it be
    handed out again. Never too early; later than `seconds` for offsets within what was handed more recently.

    Raises:
        LedgerUnavailable: Redis did not answer.
    """
    with ledger.asking("look for stuck deliveries") as pipe:
        pipe.time()
        pipe.hgetall(ledger.index_key(account))
        (now, _), fields = pipe.execute()
    steps = read_steps(fields)
    due = sum(step.until + seconds <= now for step in steps)
    seen = list(islice(read_step_rests(ledger, account, steps), due))
    narrow_steps(ledger, account, seen, now)
    return [StuckOffsets(step.since, [offset for run in own for offset in run]) for step, _, own in seen if own]
