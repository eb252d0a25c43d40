"""How much of what was parked, or sent back, may be in a queue beside all else: the rule (pure).

A queue is first in, first out, so who has which part of it has that part of the workers. What was parked is put there
a little at a time, a moment's work for each process: a million that come due at once stay in Kafka, and a live record
waits for what little is before it. Where so much else waits that workers do not keep up, what was parked is put there
in proportion, and has its share of them too.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

#: Messages for each process that are handed off and have not ended at most, where workers keep up with all else: one
#: that it runs and one that is next. A worker takes four for each process ahead: what it has taken counts too.
EACH: Final = 2
#: The most of them where all have ended whenever it is looked: a bridge that turns slowly must not idle workers. Beside
#: all else they are what a live record waits for.
EACH_AT_MOST: Final = 16
EACH_BESIDE: Final = 3
#: Seconds that one of them takes: where nothing else was handed off to the queue lately, and where something was.
ALONE: Final = 0.05
BESIDE: Final = 0.005
#: Seconds for which something was handed off lately; and a moment ago: more of it comes.
LATELY: Final = 60.0
JUST_NOW: Final = 5.0
#: Seconds after which a message counts as taken, where others put theirs into the queue and its place is not known.
PLACE_KNOWN_FOR: Final = 10.0
#: Seconds within which what was handed off of a kind counts as one.
TOGETHER: Final = 0.02


class QueuedWork(NamedTuple):
    """What waits in a queue: messages, and the deliveries in them."""

    messages: int = 0
    deliveries: int = 0

    def plus(self, messages: int, deliveries: int) -> "QueuedWork":
        """So much more."""
        return QueuedWork(self.messages + messages, self.deliveries + deliveries)


def find_retry_room(
    share: float, parked: QueuedWork, others: QueuedWork, size: int, processes: int, out: int = 0, each: int = EACH
) -> int:
    """How many more messages of what was parked may go into a queue now.

    Parameters:
        share: of the workers' time, which it has at least, and at most while there is enough of all else.
        parked: what waits of it there already, of all bridges.
        others: all else that waits there.
        size: deliveries of such a message.
        processes: that consume the queue.
        out: how many of its messages have not ended, as far as that is known: also those that workers have taken.
        each: how many of them there may be for each process.
    """
    few = each * max(1, processes) - max(out, parked.messages)
    if not processes:
        # Nobody runs it: what is there is enough for whoever comes.
        return max(0, few)
    due = others.deliveries * share / (1 - share) - parked.deliveries
    return max(0, few, int(due / size))


def adapt_messages_ahead(each: int, *, ended: bool, waits: bool, busy: bool) -> int:
    """How many messages each process may have ahead after a look.

    Parameters:
        ended: whether all that was handed off had ended: workers had nothing.
        waits: whether anything waits in the queue.
        busy: whether anything else goes through it just now.
    """
    if waits:
        return max(EACH, each // 2)
    return min(EACH_BESIDE if busy else EACH_AT_MOST, each * 2 if ended else each)


def find_retry_batch_size(most: int, busy: bool, run: float | None = None) -> int:
    """How many deliveries such a message has.

    Parameters:
        most: that take `ALONE`.
        busy: whether anything else goes through the queue.
        run: seconds that one runs, without what a message costs besides: where Redis is far, that is most of it, and
            messages of one delivery would be all that workers do.
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
    """What one bridge put into a queue, the oldest first: what is taken from a queue is its oldest."""

    def __init__(self) -> None:
        self._some: deque[_HandedMessages] = deque()
        self._sums = {True: QueuedWork(), False: QueuedWork()}
        self._length = 0
        #: When something else than what was parked was handed off last.
        self.live_at: float | None = None

    def add(self, deliveries: int, now: float, *, parked: bool) -> None:
        """A message more."""
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
        """So many messages are there now, also of others."""
        self._length = length
        over = sum(each.messages for each in self._sums.values()) - length
        while self._some and (over > 0 or (over < 0 and now - self._some[0].since > PLACE_KNOWN_FOR)):
            first = self._some[0]
            gone = min(first.messages, over) if over > 0 else first.messages
            self._take(first, gone)
            over -= gone

    def busy(self, now: float, within: float = LATELY) -> bool:
        """Whether something else goes through the queue, or went in so many seconds."""
        lately = self.live_at is not None and now - self.live_at < within
        return lately or self.others.messages > 0

    @property
    def parked(self) -> QueuedWork:
        """What this bridge put there of what was parked."""
        return self._sums[True]

    @property
    def others(self) -> QueuedWork:
        """All else; a message that another put there is a delivery."""
        known = self._sums[False]
        strange = max(0, self._length - known.messages - self.parked.messages)
        return known.plus(strange, strange)

    def _take(self, some: _HandedMessages, messages: int) -> None:
        deliveries = some.deliveries * messages // some.messages
        some.messages, some.deliveries = some.messages - messages, some.deliveries - deliveries
        self._sums[some.parked] = self._sums[some.parked].plus(-messages, -deliveries)
        if not some.messages:
            self._some.popleft()


def split_room(room_: int, handlers: int) -> int:
    """The room of a queue for each of its handlers."""
    return ceil(room_ / max(1, handlers))
