"""The room in a queue: whose messages wait in it, and how many more of a handler's may go into it now (pure).

Queued messages keep their size. So few are queued while the size grows, and never so many that a handler which becomes
slow has large batches for long, or that they fill the broker's memory.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from bridge.dispatch.batch_size_rule import BatchSize
from bridge.ledger.handler_costs import DeliveryCost

#: Messages of a handler without measured times: for each process, running ones included; and in the queue of all
#: handlers together, if no process consumes it.
UNKNOWN_EACH: Final = 4
UNKNOWN_IN_ALL: Final = 1_000
#: Most work in the queue once the size is found: seconds for each process (at least one message for each), fewer if
#: handlers share the queue; and most deliveries in all, or most messages for each process, if that is more.
WORK_EACH: Final = 5.0
WORK_BESIDE: Final = 1.0
MOST_AHEAD: Final = 200_000
MOST_EACH: Final = 50
#: Seconds of a message from which on it counts until it has ended, not only until a worker has taken it: a worker
#: prefetches four for each process, and such messages are as much work as all that may wait.
COUNTS_FROM: Final = 0.1
#: Most bytes of keys, values and headers of one handler in a queue; or a message for each process.
BYTES_AHEAD: Final = 256_000_000
#: Most seconds of work for each process in the queue while the size grows: queued messages have the old size.
AHEAD: Final = 0.2


def find_queue_room(
    size: BatchSize,
    cost: DeliveryCost | None,
    queued: int,
    processes: int,
    weighs: float = 0.0,
    *,
    beside: float = 0,
    unended: int = 0,
) -> int:
    """Return how many more of a handler's messages may go into the queue now.

    Parameters:
        queued: this handler's messages in the queue: it does not wait for those of others.
        processes: processes that consume the queue, or did last; 0 if none was seen.
        weighs: bytes of one of its messages; 0 if unknown.
        beside: into how many parts the queue's work is divided (`divide_queue_work`); 0 if no other handler uses it.
        unended: this handler's messages that have not ended, taken ones included; 0 if they do not count.
    """
    most = _most_queued(size, cost, processes, beside)
    if weighs:
        most = min(most, max(1, processes, int(BYTES_AHEAD / weighs)))
    # Running messages come on top, but for a handler without measured times.
    return max(0, min(most - queued, most + (processes if cost is not None else 0) - unended))


def counts_until_ended(size: BatchSize, cost: DeliveryCost | None) -> bool:
    """Return whether a handler's messages count until they have ended."""
    return cost is None or size.number * cost.mean >= COUNTS_FROM


def divide_queue_work(processes: int, others: Iterable[float]) -> float:
    """Return into how many parts the work of a queue is divided, for a handler that would have all of it.

    A handler that wants less than its part leaves the rest to those that want more.

    Parameters:
        processes: processes that consume the queue.
        others: seconds of work of each other handler that waits, in the queue or to be handed off; infinite if unknown.
    """
    work = left = WORK_BESIDE * max(1, processes)
    wanted = sorted(others)
    parts = len(wanted) + 1
    for seconds in wanted:
        if seconds * parts > left:
            break
        left -= seconds
        parts -= 1
    return work * parts / left


def _most_queued(size: BatchSize, cost: DeliveryCost | None, processes: int, beside: float) -> int:
    """Return the most messages of a handler in the queue, whatever their bytes."""
    if cost is None:
        return ceil(UNKNOWN_EACH * processes / max(1, beside)) if processes else UNKNOWN_IN_ALL
    each, sharing, takes = max(1, processes), max(1, beside), max(size.number * cost.mean, 1e-6)
    seconds = WORK_BESIDE / sharing if beside else WORK_EACH
    if size.grows:
        seconds = min(seconds, AHEAD)
    # Enough for every process, from all handlers of the queue together.
    work = max(ceil(seconds * each / takes), ceil(each / sharing))
    if size.grows:
        # As many as were measured: the first times may be wrong, and messages that wait keep their small size.
        return min(work, max(UNKNOWN_EACH, int(cost.deliveries)) * each)
    return min(work, max(MOST_AHEAD // size.number, MOST_EACH * each))


#: Seconds within which messages of one kind are counted together.
TOGETHER: Final = 0.02


class QueuedWork(NamedTuple):
    """The work that waits in a queue: messages, and the deliveries in them."""

    messages: int = 0
    deliveries: int = 0

    def plus(self, messages: int, deliveries: int) -> "QueuedWork":
        """Return the sum with more work."""
        return QueuedWork(self.messages + messages, self.deliveries + deliveries)


#: An empty queue.
NOTHING: Final = QueuedWork()


@dataclass(slots=True)
class _QueuedMessages:
    messages: int
    deliveries: int
    #: `None`: they were there before this bridge, and may be of any kind.
    kind: str | None = None
    since: float = 0.0


class QueueContents:
    """The estimate of what waits in one queue, by kind (a handler, say): workers take the oldest messages.

    Parameters:
        place_known_for: seconds after which a message counts as taken if other bridges fill the queue too: its position
            is unknown then.

    Attributes:
        length: messages that wait, those of other bridges included.
    """

    def __init__(self, place_known_for: float) -> None:
        self._place_known_for = place_known_for
        self._oldest_first: deque[_QueuedMessages] = deque()
        #: The sums of each kind, and the messages of all kinds.
        self._sums: dict[str | None, _QueuedMessages] = {}
        self._known = 0
        self._seen = False
        self.length = 0

    def add(self, kind: str, messages: int, deliveries: int, now: float) -> None:
        """Add messages that this bridge put there."""
        self.length += messages
        self._count(kind, messages, deliveries)
        last = self._oldest_first[-1] if self._oldest_first else None
        if last is not None and last.kind == kind and now - last.since < TOGETHER:
            last.messages += messages
            last.deliveries += deliveries
        else:
            self._oldest_first.append(_QueuedMessages(messages, deliveries, kind, now))

    def update_length(self, length: int, now: float) -> None:
        """Take in the length of the queue."""
        if not self._seen:
            self._seen = True
            if before := max(0, length - self._known):
                self._count(None, before, before)
                self._oldest_first.appendleft(_QueuedMessages(before, before, None, now))
        self.length = length
        over = self._known - length
        while self._oldest_first and (over > 0 or (over < 0 and self._is_old(now))):
            first = self._oldest_first[0]
            gone = min(first.messages, over) if over > 0 else first.messages
            self._take(first, gone)
            over -= gone

    def count(self, kind: str) -> QueuedWork:
        """Return the known work of a kind."""
        found = self._sums.get(kind)
        return NOTHING if found is None else QueuedWork(found.messages, found.deliveries)

    def count_at_most(self, kind: str) -> int:
        """Return how many messages of a kind there are at most."""
        return sum(found.messages for each in (kind, None) if (found := self._sums.get(each)) is not None)

    def count_beside(self, kind: str) -> QueuedWork:
        """Return the work beside that of a kind; a message of another bridge counts as one delivery."""
        messages = deliveries = own = 0
        for other, found in self._sums.items():
            if other == kind:
                own = found.messages
            elif other is not None:
                messages += found.messages
                deliveries += found.deliveries
        strange = max(0, self.length - messages - own)
        return QueuedWork(messages + strange, deliveries + strange)

    def _is_old(self, now: float) -> bool:
        return now - self._oldest_first[0].since > self._place_known_for

    def _take(self, some: _QueuedMessages, messages: int) -> None:
        deliveries = some.deliveries * messages // some.messages
        some.messages -= messages
        some.deliveries -= deliveries
        self._count(some.kind, -messages, -deliveries)
        if not some.messages:
            self._oldest_first.popleft()

    def _count(self, kind: str | None, messages: int, deliveries: int) -> None:
        self._known += messages
        found = self._sums.get(kind)
        if found is None:
            self._sums[kind] = _QueuedMessages(messages, deliveries, kind)
        else:
            found.messages += messages
            found.deliveries += deliveries
