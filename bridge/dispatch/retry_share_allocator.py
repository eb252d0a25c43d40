"""The share of retries in each queue, and the measurements behind it."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.retry_share_rule import (
    EACH,
    JUST_NOW,
    QueuedWork,
    QueueMix,
    adapt_messages_ahead,
    find_retry_batch_size,
    find_retry_room,
    split_room,
)
from bridge.errors import BridgeError
from bridge.ledger import Account, Fate, Ledger
from bridge.ledger.group_members import make_member_name
from bridge.ledger.peer_backlog import PeerBacklog
from bridge.partitions.ordering import Portion

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

    def handed(self, handler: str, account: Account, offsets: Sequence[int], *, parked: bool) -> None:
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
            self._messages_ahead.get(queue, EACH),
        )
        left = 0 if queue in self._full else left
        return Portion(size, size, split_room(left, handlers), f"{size}: what was parked, beside all else")

    def _see_others(self, queues: list[str]) -> None:
        waiting = self._broker.waiting(queues)
        self._full = {queue for queue, count in waiting.items() if count > self._high}
        if self._ahead is not None:
            theirs = self._ahead.exchange({queue: self._mix(queue).parked for queue in queues})
            self._theirs = {queue: QueuedWork(*counts) for queue, counts in theirs.items()}

    def _see_out(self, queue: str, now: float) -> None:
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
            for queue, length in self._broker.lengths(queues).items():
                self._mix(queue).see(length, now)
                had = bool(self._unended.get(queue))
                self._see_out(queue, now)
                ended = had and not self._unended[queue]
                ahead, busy = self._messages_ahead.get(queue, EACH), self._mix(queue).busy(now, JUST_NOW)
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
