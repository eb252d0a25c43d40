"""The share of retries in each queue: what is measured for it, and when."""

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

#: Seconds between two looks at the queues, and at what other bridges have there.
LOOK_EVERY: Final = 0.01
OTHERS_EVERY: Final = 0.1
#: Seconds for which a message that has not ended counts as what a worker has, or will have next: it may have failed
#: again by then, and wait for its time.
COUNTS_FOR: Final = 1.0
#: Seconds between two looks while they fail.
FAILED_EVERY: Final = 1.0


class RetryShareAllocator:
    """What may be taken of retry and replay topics; nothing is looked at while nothing of them is due.

    Parameters:
        share: `kafka_retry_share`.
        ledger: `None` where there is no Redis for it: then each bridge keeps the share for itself.
        high: `kafka_pause_above`: where so many messages of a queue wait for their time in the broker, nothing more
            goes there: what fails again and again must not fill it.
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
        self._each: dict[str, int] = {}
        self._ahead = PeerBacklog(ledger, make_member_name()) if ledger is not None else None
        self._ledger = ledger
        self._mixes: dict[str, QueueMix] = {}
        self._out: dict[str, list[tuple[Account, Sequence[int], float]]] = {}
        self._theirs: Mapping[str, QueuedWork] = {}
        self._look_at = self._others_at = 0.0
        self._failed = False

    def portions(self, ready: Mapping[str, int]) -> dict[str, Portion]:
        """What may be taken now.

        Parameters:
            ready: for each handler, the deliveries that are due.
        """
        queues: dict[str, list[str]] = {}
        for handler in ready:
            queues.setdefault(self._broker.queue_of(handler), []).append(handler)
        self._look(list(queues))
        return {
            handler: self._portion(queue, handler, ready[handler], len(handlers))
            for queue, handlers in queues.items()
            for handler in handlers
        }

    def handed(self, handler: str, account: Account, offsets: Sequence[int], *, parked: bool) -> None:
        """A message of a handler went into its queue, with deliveries whose fates are in an account."""
        if parked or self._mixes:
            queue, now = self._broker.queue_of(handler), self._clock()
            self._mix(queue).add(len(offsets), now, parked=parked)
            if parked:
                self._out.setdefault(queue, []).append((account, offsets, now))

    def _portion(self, queue: str, handler: str, ready: int, handlers: int) -> Portion:
        mix, processes = self._mix(queue), self._sizes.processes(queue)
        most = self._sizes.most(handler)
        each = (
            find_retry_batch_size(most, mix.busy(self._clock()), self._sizes.run(handler))
            if self._sizes.finds(handler)
            else most
        )
        # As many as there is room for are shared by the processes.
        each = max(1, min(each, ready // max(1, processes)))
        theirs = self._theirs.get(queue, QueuedWork())
        others = mix.others
        others = QueuedWork(max(0, others.messages - theirs.messages), max(0, others.deliveries - theirs.messages))
        out = len(self._out.get(queue, ())) + theirs.messages
        left = find_retry_room(
            self._share, mix.parked.plus(*theirs), others, each, processes, out, self._each.get(queue, EACH)
        )
        left = 0 if queue in self._full else left
        return Portion(each, each, split_room(left, handlers), f"{each}: what was parked, beside all else")

    def _see_others(self, queues: list[str]) -> None:
        waiting = self._broker.waiting(queues)
        self._full = {queue for queue, count in waiting.items() if count > self._high}
        if self._ahead is not None:
            said = self._ahead.exchange({queue: self._mix(queue).parked for queue in queues})
            self._theirs = {queue: QueuedWork(*found) for queue, found in said.items()}

    def _see_out(self, queue: str, now: float) -> None:
        """Forget what has ended."""
        out = [each for each in self._out.get(queue, ()) if now - each[2] < COUNTS_FOR]
        if self._ledger is not None and out:
            found = self._ledger.fates_of([(account, offsets) for account, offsets, _ in out])
            out = [each for each, fates in zip(out, found, strict=True) if Fate.HANDED in fates]
        self._out[queue] = out

    def _mix(self, queue: str) -> QueueMix:
        return self._mixes.setdefault(queue, QueueMix())

    def _look(self, queues: list[str]) -> None:
        """See what waits in the queues; whatever goes wrong, all stays as it was."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        try:
            for queue, length in self._broker.lengths(queues).items():
                self._mix(queue).see(length, now)
                had = bool(self._out.get(queue))
                self._see_out(queue, now)
                ended = had and not self._out[queue]
                each, busy = self._each.get(queue, EACH), self._mix(queue).busy(now, JUST_NOW)
                self._each[queue] = adapt_messages_ahead(each, ended=ended, waits=length > 0, busy=busy)
            if now >= self._others_at:
                self._others_at = now + OTHERS_EVERY
                self._see_others(queues)
        except BridgeError as error:
            self._look_at = now + FAILED_EVERY
            if not self._failed:
                logger.warning("what was parked goes out as far as there was room for it: %s", error)
            self._failed = True
        else:
            self._failed = False
