"""The search for stuck deliveries, which were handed off long ago and are in no task; they are opened again."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.carrier_message import PartitionHandler
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.ledger import RETRY_RECORD, Account, Fate, Ledger, Mark
from bridge.ledger.handoff_times import find_handed_accounts, narrow_steps, read_step_rests, read_steps
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)


class StuckSuspects:
    """The deliveries that may be stuck. Each method raises LedgerUnavailable if Redis does not answer.

    Parameters:
        after: seconds after the hand-off at which an unsettled delivery is suspected.
    """

    def __init__(self, ledger: Ledger, metrics: BridgeMetrics, after: float) -> None:
        self._ledger, self._metrics, self._after = ledger, metrics, after

    def find_places(self, partitions: Iterable[Partition]) -> set[Place]:
        """Return the partitions of which deliveries may be in flight: only these can have stuck ones."""
        accounts = {account for partition in partitions for account in partition.accounts.values()}
        return {(account.topic, account.partition) for account in find_handed_accounts(self._ledger, [*accounts])}

    def find(self, partition: Partition, handler: str) -> list[int]:
        """Return the suspected offsets of a handler on a partition, ascending."""
        found = find_stuck_offsets(self._ledger, partition.accounts[handler], self._after)
        return sorted({offset for each in found for offset in each.offsets})

    def reopen(self, partition: Partition, handler: str, nowhere: Sequence[int]) -> None:
        """Open deliveries whose task is nowhere; without an answer of the ledger they may be open all the same."""
        logger.warning(
            "%s-%d: %s to %s, handed off over %g s ago, %s in no task now: they are handed off again.",
            partition.topic,
            partition.number,
            format_count(len(nowhere), "delivery"),
            handler,
            self._after,
            inflect_verb(len(nowhere), "are"),
        )
        self._ledger.write([Mark(partition.accounts[handler], nowhere, Fate.OPEN)])
        self._metrics.stuck.inc(len(nowhere))


#: Seconds of one slice of a search: the bridge hands off between two slices.
SLICE: Final = 0.1
#: Most deliveries of one queue in one search; the next search goes on behind them.
SUSPECTS: Final = 50_000
#: The pause after a search: a multiple of its time, and at least a part of `stuck_after`.
PAUSE_FACTOR: Final = 20
PAUSE_PART: Final = 0.1


class RereadRequest(NamedTuple):
    """A partition to read again from an offset on."""

    partition: Partition
    offset: int


class StuckDeliveryFinder:
    """The repeated search for stuck deliveries, through the queues that may hold suspects and no others.

    Its memory does not grow with the queue: messages are read in pieces, and only suspected offsets are kept.

    Parameters:
        queues: all queues of deliveries: a retry record may be of any handler.
        stuck_after: seconds after which a delivery is suspected; at most ten searches start in them.

    Attributes:
        more: whether the search goes on at once.
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
        """Search for one slice of time, if a search is due.

        Yields:
            a partition to read again, before its deliveries are opened: a write without an answer may have been done,
            and an open delivery is not found again.

        Raises:
            LedgerUnavailable: Redis does not answer; the next search starts anew.
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
            logger.warning("the search for stuck deliveries failed: %s", str(error))
        finally:
            self._taken += self._clock() - begun
            if not self.more:
                self._end()

    def _end(self) -> None:
        self._steps = None
        if self._read:
            # The messages found will stay for a while: do not read the whole queue again in a minute.
            self._next = self._clock() + max(PAUSE_FACTOR * self._taken, PAUSE_PART * self._stuck_after)

    def _search(self) -> Iterator[RereadRequest | None]:
        places = self._suspected.find_places(self._assignment.partitions)
        yield None
        for queue in sorted({each.queue for partition in self._assignment.partitions for each in partition.handlers}):
            suspects: dict[PartitionHandler, set[int]] = {}
            for partition in [each for each in self._assignment.partitions if each.place in places]:
                self._suspect(partition, queue, suspects)
                yield None
            if not suspects:
                continue
            self._read = True
            yield from self._messages.search(queue, suspects)
            for partition in list(self._assignment.partitions):
                yield from self._reopen(partition, suspects)

        yield from self._search_own(places)

    def _search_own(self, places: Collection[Place]) -> Iterator[RereadRequest | None]:
        """Search all queues for the records of retry and replay topics."""
        suspects: dict[PartitionHandler, set[int]] = {}
        for partition in [each for each in self._assignment.parked if each.place in places]:
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
        """Add the suspects of a partition; one that fails stops no other."""
        for handler in partition.handlers:
            if handler.queue == queue:
                self._suspect_of(partition, handler.name, suspects)

    def _suspect_of(self, partition: Partition, handler: str, suspects: dict[PartitionHandler, set[int]]) -> None:
        room = SUSPECTS - sum(map(len, suspects.values()))
        if room <= 0:
            return
        owner = (handler, *partition.place)
        try:
            offsets = self._suspected.find(partition, handler)
        except LedgerUnavailable:
            raise
        except Exception:
            logger.exception("%s-%d: the search for stuck deliveries failed.", *partition.place)
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
    """The offsets handed within ten seconds of `since` (Unix time by Redis's clock) and not settled."""

    since: int
    offsets: Sequence[int]


def find_stuck_offsets(ledger: Ledger, account: Account, seconds: float) -> list[StuckOffsets]:
    """Return the offsets handed at least `seconds` ago and still `handed`, oldest first.

    The caller checks whether a task still has them; Mark(account, offsets, Fate.OPEN) then hands them out again. They
    are never found too early, but later if newer hand-offs surround them.

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
