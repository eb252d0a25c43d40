"""The rule for the share of retry and replay records in a queue (pure).

A queue is first in, first out, so a share of the queue is that share of the workers. Retry records enter a few at a
time, a moment's work for each process: a million that come due at once stay in Kafka, and a live record waits only for
those few. If so much else waits that workers do not keep up, retry records enter in proportion to it.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

#: Most retry messages in flight for each process, while workers keep up with all else: one that runs and one that is
#: next. A worker prefetches four for each process: those count too.
EACH: Final = 2
#: The same at most, if all had ended at each poll: a slow loop must not idle workers. Live records wait for them, so
#: they are fewer beside other work.
EACH_AT_MOST: Final = 16
EACH_BESIDE: Final = 3
#: Seconds of such a message: if nothing else was handed off to the queue lately, and if something was.
ALONE: Final = 0.05
BESIDE: Final = 0.005
#: Seconds that count as lately; and as a moment ago, when more is expected.
LATELY: Final = 60.0
JUST_NOW: Final = 5.0
#: Seconds after which a message counts as taken if other bridges fill the queue too: its position is unknown then.
PLACE_KNOWN_FOR: Final = 10.0
#: Seconds within which messages of one kind are counted together.
TOGETHER: Final = 0.02


class QueuedWork(NamedTuple):
    """The work that waits in a queue: messages, and the deliveries in them."""

    messages: int = 0
    deliveries: int = 0

    def plus(self, messages: int, deliveries: int) -> "QueuedWork":
        """Return the sum with more work."""
        return QueuedWork(self.messages + messages, self.deliveries + deliveries)


def find_retry_room(
    share: float, parked: QueuedWork, others: QueuedWork, size: int, processes: int, out: int = 0, each: int = EACH
) -> int:
    """Return how many more retry messages may go into a queue now.

    Parameters:
        share: retries' part of the workers' time, while there is enough of all else.
        parked: retry messages that already wait there, of all bridges.
        others: all else that waits there.
        size: deliveries of such a message.
        processes: processes that consume the queue.
        out: retry messages that have not ended, as far as known, taken ones included.
        each: how many of them there may be for each process.
    """
    few = each * max(1, processes) - max(out, parked.messages)
    if not processes:
        # No process runs: what is there is enough for the first one.
        return max(0, few)
    due = others.deliveries * share / (1 - share) - parked.deliveries
    return max(0, few, int(due / size))


def adapt_messages_ahead(each: int, *, ended: bool, waits: bool, busy: bool) -> int:
    """Return how many messages each process may have ahead after a poll.

    Parameters:
        ended: whether all that was handed off had ended: workers had nothing.
        waits: whether anything waits in the queue.
        busy: whether anything else goes through it just now.
    """
    if waits:
        return max(EACH, each // 2)
    return min(EACH_BESIDE if busy else EACH_AT_MOST, each * 2 if ended else each)


def find_retry_batch_size(most: int, busy: bool, run: float | None = None) -> int:
    """Return how many deliveries a retry message has.

    Parameters:
        most: deliveries that take `ALONE`.
        busy: whether anything else goes through the queue.
        run: seconds that one runs, without the overhead of its message: with a distant Redis the overhead is most of
            the time, and messages of one delivery would waste it.
    """
    if not busy:
        return most
    return max(1, int(most * BESIDE / ALONE), min(most, int(BESIDE / run)) if run else 0)


@dataclass(slots=True)
class _HandedMessages:
    parked: bool
    messages: int
    deliveries: int
    since: float


class QueueMix:
    """The messages that one bridge put into a queue, the oldest first: workers take the oldest."""

    def __init__(self) -> None:
        self._some: deque[_HandedMessages] = deque()
        self._sums = {True: QueuedWork(), False: QueuedWork()}
        self._length = 0
        #: When something else than a retry was last handed off.
        self.live_at: float | None = None

    def add(self, deliveries: int, now: float, *, parked: bool) -> None:
        """Add a message."""
        self._length += 1
        self._sums[parked] = self._sums[parked].plus(1, deliveries)
        last = self._some[-1] if self._some else None
        if last is not None and last.parked == parked and now - last.since < TOGETHER:
            last.messages, last.deliveries = last.messages + 1, last.deliveries + deliveries
        else:
            self._some.append(_HandedMessages(parked, 1, deliveries, now))
        if not parked:
            self.live_at = now

    def see(self, length: int, now: float) -> None:
        """Take in the length of the queue, messages of other bridges included."""
        self._length = length
        over = sum(each.messages for each in self._sums.values()) - length
        while self._some and (over > 0 or (over < 0 and now - self._some[0].since > PLACE_KNOWN_FOR)):
            first = self._some[0]
            gone = min(first.messages, over) if over > 0 else first.messages
            self._take(first, gone)
            over -= gone

    def busy(self, now: float, within: float = LATELY) -> bool:
        """Return whether other work goes through the queue, or did in so many seconds."""
        lately = self.live_at is not None and now - self.live_at < within
        return lately or self.others.messages > 0

    @property
    def parked(self) -> QueuedWork:
        """Return the retries that this bridge put there."""
        return self._sums[True]

    @property
    def others(self) -> QueuedWork:
        """Return all other work; a message of another bridge counts as one delivery."""
        known = self._sums[False]
        strange = max(0, self._length - known.messages - self.parked.messages)
        return known.plus(strange, strange)

    def _take(self, some: _HandedMessages, messages: int) -> None:
        deliveries = some.deliveries * messages // some.messages
        some.messages, some.deliveries = some.messages - messages, some.deliveries - deliveries
        self._sums[some.parked] = self._sums[some.parked].plus(-messages, -deliveries)
        if not some.messages:
            self._some.popleft()


def split_room(room: int, handlers: int) -> int:
    """Return the room of a queue for each of its handlers."""
    return ceil(room / max(1, handlers))
