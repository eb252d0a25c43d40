"""The share of retry and replay records in each queue: its rule (pure), and the allocator with its measurements.

A queue is first in, first out, so a share of the queue is that share of the workers. Retry records enter a few at a
time, a moment's work for each process: a million that come due at once stay in Kafka, and a live record waits only for
those few. If so much else waits that workers do not keep up, retry records enter in proportion to it.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from typing import Final

from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.queue_room import QueueContents, QueuedWork
from bridge.errors import BridgeError
from bridge.ledger import Account, Fate, Ledger
from bridge.ledger.group_members import make_member_name
from bridge.ledger.peer_backlog import PeerBacklog
from bridge.partitions.ordering import Portion

#: Most retry messages in flight for each process, while workers keep up with all else: one that runs and one that is
#: next. A worker prefetches four for each process: those count too.
MESSAGES_PER_PROCESS: Final = 2
#: The same at most, if all had ended at each poll: a slow loop must not idle workers. Live records wait for them, so
#: they are fewer beside other work.
MOST_MESSAGES_PER_PROCESS: Final = 16
MESSAGES_PER_PROCESS_SHARED: Final = 3
#: Seconds of such a message: if nothing else was handed off to the queue lately, and if something was.
BATCH_SECONDS_ALONE: Final = 0.05
BATCH_SECONDS_SHARED: Final = 0.005
#: Seconds that count as lately; and as a moment ago, when more is expected.
LATELY: Final = 60.0
JUST_NOW: Final = 5.0
#: Seconds after which the position of a message is unknown, if other bridges fill the queue too.
PLACE_KNOWN_FOR: Final = 10.0
#: The kinds of work in a queue.
_RETRIES, _LIVE = "retries", "live"


def find_retry_room(
    share: float,
    parked: QueuedWork,
    others: QueuedWork,
    size: int,
    processes: int,
    out: int = 0,
    each: int = MESSAGES_PER_PROCESS,
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
        return max(MESSAGES_PER_PROCESS, each // 2)
    return min(MESSAGES_PER_PROCESS_SHARED if busy else MOST_MESSAGES_PER_PROCESS, each * 2 if ended else each)


def find_retry_batch_size(most: int, busy: bool, run: float | None = None) -> int:
    """Return how many deliveries a retry message has.

    Parameters:
        most: deliveries that take `BATCH_SECONDS_ALONE`.
        busy: whether anything else goes through the queue.
        run: seconds that one runs, without the overhead of its message: with a distant Redis the overhead is most of
            the time, and messages of one delivery would waste it.
    """
    if not busy:
        return most
    return max(
        1,
        int(most * BATCH_SECONDS_SHARED / BATCH_SECONDS_ALONE),
        min(most, int(BATCH_SECONDS_SHARED / run)) if run else 0,
    )


class QueueMix:
    """The retries and the other work that one bridge put into a queue."""

    def __init__(self) -> None:
        self._contents = QueueContents(PLACE_KNOWN_FOR)
        #: When something else than a retry was last handed off.
        self._live_at: float | None = None

    def add(self, deliveries: int, now: float, *, parked: bool) -> None:
        """Add a message."""
        self._contents.add(_RETRIES if parked else _LIVE, 1, deliveries, now)
        if not parked:
            self._live_at = now

    def update_length(self, length: int, now: float) -> None:
        """Take in the length of the queue, messages of other bridges included."""
        self._contents.update_length(length, now)

    def busy(self, now: float, within: float = LATELY) -> bool:
        """Return whether other work goes through the queue, or did in so many seconds."""
        lately = self._live_at is not None and now - self._live_at < within
        return lately or self.others.messages > 0

    @property
    def parked(self) -> QueuedWork:
        """Return the retries that this bridge put there."""
        return self._contents.count(_RETRIES)

    @property
    def others(self) -> QueuedWork:
        """Return all other work; a message of another bridge counts as one delivery."""
        return self._contents.count_beside(_RETRIES)


def split_room(room: int, handlers: int) -> int:
    """Return the room of a queue for each of its handlers."""
    return ceil(room / max(1, handlers))


logger = logging.getLogger(__name__)

#: Seconds between two polls of the queues, and of what other bridges have there.
POLL_EVERY: Final = 0.01
OTHERS_EVERY: Final = 0.1
#: Seconds for which a message that has not ended counts as taken or next: after that it may have failed, and wait for
#: its next retry.
COUNTS_FOR: Final = 1.0
#: Seconds between two polls while they fail.
FAILED_EVERY: Final = 1.0


class RetryShareAllocator:
    """The allocator of room for retry and replay records; it polls nothing while none of them is due.

    Parameters:
        share: `kafka_retry_share`.
        ledger: `None` without Redis: then each bridge keeps the share by itself.
        high: `kafka_pause_above`: a queue with so many messages that wait in the broker until they are due gets no
            more, so that repeated failures do not fill it.
    """

    def __init__(
        self,
        share: float,
        sizes: BatchSizer,
        broker: CeleryBroker,
        ledger: Ledger | None,
        high: float = inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share, self._sizes, self._broker, self._high, self._clock = share, sizes, broker, high, clock
        self._full: set[str] = set()
        self._messages_ahead: dict[str, int] = {}
        self._ahead = PeerBacklog(ledger, make_member_name()) if ledger is not None else None
        self._ledger = ledger
        self._mixes: dict[str, QueueMix] = {}
        self._unended: dict[str, list[tuple[Account, Sequence[int], float]]] = {}
        self._theirs: Mapping[str, QueuedWork] = {}
        self._poll_at = self._others_at = 0.0
        self._failed = False

    def portions(self, ready: Mapping[str, int]) -> dict[str, Portion]:
        """Return what may be taken now.

        Parameters:
            ready: by handler, the deliveries that are due.
        """
        queues: dict[str, list[str]] = {}
        for handler in ready:
            queues.setdefault(self._broker.queue_of(handler), []).append(handler)
        self._poll(list(queues))
        return {
            handler: self._portion(queue, handler, ready[handler], len(handlers))
            for queue, handlers in queues.items()
            for handler in handlers
        }

    def note_handed(self, handler: str, account: Account, offsets: Sequence[int], *, parked: bool) -> None:
        """Note a message that went into its handler's queue, and the account with the fates of its deliveries."""
        if parked or self._mixes:
            queue, now = self._broker.queue_of(handler), self._clock()
            self._mix(queue).add(len(offsets), now, parked=parked)
            if parked:
                self._unended.setdefault(queue, []).append((account, offsets, now))

    def _portion(self, queue: str, handler: str, ready: int, handlers: int) -> Portion:
        mix, processes = self._mix(queue), self._sizes.processes(queue)
        most = self._sizes.most(handler)
        size = (
            find_retry_batch_size(most, mix.busy(self._clock()), self._sizes.run_seconds(handler))
            if self._sizes.is_automatic(handler)
            else most
        )
        # The processes share the deliveries that have room.
        size = max(1, min(size, ready // max(1, processes)))
        theirs = self._theirs.get(queue, QueuedWork())
        others = mix.others
        others = QueuedWork(max(0, others.messages - theirs.messages), max(0, others.deliveries - theirs.messages))
        unended = len(self._unended.get(queue, ())) + theirs.messages
        left = find_retry_room(
            self._share,
            mix.parked.plus(*theirs),
            others,
            size,
            processes,
            unended,
            self._messages_ahead.get(queue, MESSAGES_PER_PROCESS),
        )
        left = 0 if queue in self._full else left
        return Portion(size, size, split_room(left, handlers), f"{size}: what was parked, beside all else")

    def _see_others(self, queues: list[str]) -> None:
        waiting = self._broker.count_delayed(queues)
        self._full = {queue for queue, count in waiting.items() if count > self._high}
        if self._ahead is not None:
            theirs = self._ahead.exchange({queue: self._mix(queue).parked for queue in queues})
            self._theirs = {queue: QueuedWork(*counts) for queue, counts in theirs.items()}

    def _drop_ended(self, queue: str, now: float) -> None:
        """Forget the messages that have ended."""
        unended = [each for each in self._unended.get(queue, ()) if now - each[2] < COUNTS_FOR]
        if self._ledger is not None and unended:
            fates_of = self._ledger.fates_of([(account, offsets) for account, offsets, _ in unended])
            unended = [each for each, fates in zip(unended, fates_of, strict=True) if Fate.HANDED in fates]
        self._unended[queue] = unended

    def _mix(self, queue: str) -> QueueMix:
        return self._mixes.setdefault(queue, QueueMix())

    def _poll(self, queues: list[str]) -> None:
        """Poll the queues; if that fails, all stays as it was."""
        now = self._clock()
        if now < self._poll_at:
            return
        self._poll_at = now + POLL_EVERY
        try:
            for queue, length in self._broker.read_lengths(queues).items():
                self._mix(queue).update_length(length, now)
                had = bool(self._unended.get(queue))
                self._drop_ended(queue, now)
                ended = had and not self._unended[queue]
                ahead, busy = (
                    self._messages_ahead.get(queue, MESSAGES_PER_PROCESS),
                    self._mix(queue).busy(now, JUST_NOW),
                )
                self._messages_ahead[queue] = adapt_messages_ahead(ahead, ended=ended, waits=length > 0, busy=busy)
            if now >= self._others_at:
                self._others_at = now + OTHERS_EVERY
                self._see_others(queues)
        except BridgeError as error:
            self._poll_at = now + FAILED_EVERY
            if not self._failed:
                logger.warning("retry records go out by the last known room of their queues: %s", error)
            self._failed = True
        else:
            self._failed = False
