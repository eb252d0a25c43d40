"""The batch sizes in use, and the measurements behind them."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from bridge.dispatch.batch_size_rule import (
    BatchSize,
    find_batch_size,
    share_among_processes,
)
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.queue_room import QueueContents, counts_until_ended, divide_queue_work, find_queue_room
from bridge.errors import BridgeError
from bridge.handler_routes import Handler, Routes
from bridge.ledger import Account, Ledger
from bridge.ledger.fate_rules import Fate
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.handler_costs import DeliveryCost, HandlerCosts, KnownCost
from bridge.partitions.ordering import MESSAGE_BYTES, Portion

logger = logging.getLogger(__name__)

#: Seconds between two polls: while a size grows, and else.
GROWING_EVERY: Final = 0.05
POLL_EVERY: Final = 0.1
#: Seconds after a hand-off within which a size can grow.
GROWS_FOR: Final = 1.0
#: Seconds between two polls of the living workers, and of the costs of handlers whose cost is known.
WORKERS_EVERY: Final = 1.0
COSTS_EVERY: Final = 0.5
#: Seconds after a hand-off during which a handler counts as a user of the queue, and as one that would use more.
SHARED_FOR: Final = 60.0
FULL_FOR: Final = 5.0
#: Seconds for which hand-off waits for the first worker.
WAIT_FOR_TIMES: Final = 3.0
#: Seconds between two polls while they fail.
FAILED_EVERY: Final = 1.0
#: Seconds after which the position of a message is unknown, if other bridges fill the queue too.
PLACE_KNOWN_FOR: Final = 60.0
#: A count of processes above this is not believed.
MOST_PROCESSES: Final = 10_000


class BatchSizer:
    """The sizer of batches: how many deliveries a message carries, and how many messages may be in a queue.

    It polls nothing while nothing is handed out.

    Parameters:
        ledger: `None` without Redis: then no times and no processes are known.
    """

    def __init__(
        self, routes: Routes, ledger: Ledger | None, broker: CeleryBroker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._routes, self._ledger, self._broker, self._clock = routes, ledger, broker, clock
        self._times = HandlerCosts(ledger) if ledger is not None else None
        self._workers = GroupMembers(ledger, "workers") if ledger is not None else None
        self._sizes = {handler.name: _first_size(handler) for handler in routes}
        self._in_use: dict[str, BatchSize] = {}
        self._known: dict[str, KnownCost] = {}
        self._queues = {queue: QueueContents(PLACE_KNOWN_FOR) for queue in routes.queues}
        #: The messages of each handler that have not ended, if those count.
        self._unended = {handler.name: UnendedMessages() for handler in routes}
        self._processes: dict[str, int] = {}
        #: How many processes consumed each queue when some were last seen.
        self._processes_last: dict[str, int] = {}
        #: Bytes of a delivery of each handler, lately.
        self._bytes: dict[str, float] = {}
        #: When something of each handler was last handed off.
        self._handed_at: dict[str, float] = {}
        #: Seconds until all deliveries of each handler that are ready have run, when last portioned.
        self._waits: dict[str, float] = {}
        #: The last portion of each handler, and when one was last used up.
        self._portions: dict[str, Portion] = {}
        self._full_at: dict[str, float] = {}
        self._poll_at = self._workers_at = self._costs_at = 0.0
        #: By handler: since when its first measured times are awaited.
        self._waits_since: dict[str, float] = {}
        #: Since when polls fail.
        self._fails_since: float | None = None

    @property
    def due(self) -> bool:
        """Return whether it is time to poll."""
        return bool(self._sizes) and self._clock() >= self._poll_at

    def poll(self) -> None:
        """Poll the cost of handlers, the length of their queues and the living workers.

        If that fails, all sizes stay as they were, and hand-off goes on.
        """
        if not self.due:
            return
        try:
            self._poll()
        except Exception as error:
            self._poll_at = self._clock() + FAILED_EVERY
            if self._fails_since is None:
                self._fails_since = self._clock()
                logger.warning("batch sizes stay as they are, hand-off goes on: %s", _format_error(error))
        else:
            self._fails_since = None

    def _poll(self) -> None:
        known = self._read_costs()
        queued = self._broker.read_lengths(list(self._queues))
        now = self._clock()
        if now >= self._workers_at:
            self._processes = self._count_processes()
            self._processes_last |= self._processes
            self._workers_at = now + WORKERS_EVERY
        self._known = known
        if now >= self._costs_at:
            self._costs_at = now + COSTS_EVERY
        for queue, length in queued.items():
            self._queues[queue].update_length(length, now)
        self._see_unended(now)
        self._sizes |= {
            handler.name: find_batch_size(
                known.get(handler.name, KnownCost()),
                self._sizes[handler.name].number,
                self._at_once(handler),
                self._waits.get(handler.name, 0.0),
            )
            for handler in self._routes
            if self.is_automatic(handler.name)
        }
        growing = any(self._can_grow(name, now) for name in self._sizes)
        self._poll_at = now + (GROWING_EVERY if growing else POLL_EVERY)

    def _read_costs(self) -> dict[str, KnownCost]:
        """Return the costs of all handlers; those by which no size grows are read again now and then."""
        if self._times is None:
            return {}
        if (now := self._clock()) >= self._costs_at:
            return self._times.read_costs(self._sizes)
        growing = [name for name in self._sizes if self._can_grow(name, now)]
        return {**self._known, **self._times.read_costs(growing)} if growing else self._known

    def _can_grow(self, name: str, now: float) -> bool:
        """Return whether the next poll may raise the size of a handler."""
        handed = now - self._handed_at.get(name, -inf) < GROWS_FOR
        return handed and (self._sizes[name].grows or self._cost(name) is None)

    def _see_unended(self, now: float) -> None:
        """Forget the messages that have ended, of handlers whose room depends on that."""
        if self._ledger is None:
            return
        asked = [
            (unended, *each)
            for name, unended in self._unended.items()
            if self._cost(name) is None or unended.count > self._processes.get(self._routes.handlers[name].queue, 0)
            for each in unended.questions()
        ]
        fates = self._ledger.fates_of([(account, offsets) for _, account, offsets in asked]) if asked else []
        for (unended, account, offsets), found in zip(asked, fates, strict=True):
            unended.take_in_fates(account, offsets, found)
        for name, unended in self._unended.items():
            cost = self._cost(name)
            unended.forget(now, self._sizes[name].number * cost.mean if cost is not None else None)

    def portions(self, ready: Mapping[str, int]) -> dict[str, Portion]:
        """Return what may be taken now.

        Parameters:
            ready: by handler, the deliveries that may be handed out and that several processes could share.
        """
        now, known = self._clock(), self._routes.handlers
        self._full_at |= {name: now for name, portion in self._portions.items() if portion.spent}
        busy = self._lately(self._handed_at, SHARED_FOR)
        self._waits = {}
        work = self._find_work(ready, self._lately(self._full_at, FULL_FOR))
        portions = {
            name: self._portion(known[name], count, self._beside(known[name], busy, work))
            for name, count in ready.items()
            if name in known
        }
        self._portions = {name: portion for name, portion in portions.items() if ready[name]}
        return portions

    def note_handed(self, handler: str, messages: int, deliveries: int = 0, size: int = 0) -> None:
        """Note messages of a handler that went into its queue.

        Parameters:
            size: bytes of keys, values and headers of all their deliveries.
        """
        self._handed_at[handler] = self._clock()
        if known := self._routes.handlers.get(handler):
            if deliveries:
                self._bytes[handler] = _fading_mean(self._bytes.get(handler), size / deliveries)
            self._queues[known.queue].add(handler, messages, deliveries, self._clock())

    def note_message(self, handler: str, account: Account, offsets: Sequence[int]) -> None:
        """Note a message that went into its handler's queue, and the account with the fates of its deliveries."""
        if handler in self._sizes and counts_until_ended(self._sizes[handler], self._cost(handler)):
            self._unended[handler].add(account, offsets[-1], self._clock())

    def is_automatic(self, handler: str) -> bool:
        """Return whether the batch size of a handler is automatic."""
        return handler in self._sizes and self._routes.handlers[handler].batch == "auto"

    def most(self, handler: str) -> int:
        """Return how many deliveries a message to a handler may carry; 1 for an unknown handler."""
        return self._sizes[handler].number if handler in self._sizes else 1

    def run_seconds(self, handler: str) -> float | None:
        """Return the measured seconds that a delivery runs, without the overhead of its message; `None` if unknown."""
        cost = self._cost(handler)
        return cost.seconds / cost.deliveries if cost is not None and cost.deliveries and cost.seconds > 0 else None

    def processes(self, queue: str) -> int:
        """Return how many processes consume a queue, as far as known."""
        return self._processes.get(queue, 0)

    def shown(self) -> dict[str, BatchSize]:
        """Return, by handler, the size that was last in use, and why."""
        return self._sizes | self._in_use

    def _find_work(self, ready: Mapping[str, int], full: Mapping[str, set[str]]) -> dict[str, dict[str, float]]:
        """Return, by queue and handler, the seconds of work that wait; infinite if unknown, or used up lately."""
        found: dict[str, dict[str, float]] = {}
        for handler in self._routes:
            name, of_queue = handler.name, found.setdefault(handler.queue, {})
            if name in full.get(handler.queue, ()):
                of_queue[name] = inf
            elif waits := ready.get(name, 0) + self._queues[handler.queue].count(name).deliveries:
                cost = self._cost(name)
                of_queue[name] = inf if cost is None else waits * cost.mean
        return found

    def _beside(self, handler: Handler, busy: Mapping[str, set[str]], work: Mapping[str, Mapping[str, float]]) -> float:
        """Return into how many parts the work of a handler's queue is divided; 0 if no other handler uses it.

        Parameters:
            busy: by queue, the handlers with a recent hand-off.
            work: by queue and handler, the seconds of work that wait.
        """
        others = {name: seconds for name, seconds in work.get(handler.queue, {}).items() if name != handler.name}
        if not others and not busy.get(handler.queue, set()) - {handler.name}:
            return 0
        return divide_queue_work(self._processes.get(handler.queue, 0), others.values())

    def _portion(self, handler: Handler, ready: int, beside: float) -> Portion:
        name = handler.name
        size, queue = self._sizes[name], self._queues[handler.queue]
        processes = self._processes.get(handler.queue, 0)
        used = (
            share_among_processes(size, ready, queue.length, processes, self._at_once(handler))
            if ready and self.is_automatic(name)
            else size
        )
        self._in_use[name] = used
        cost = self._cost(name)
        self._waits[name] = ready * cost.mean * max(1, beside) / max(1, processes) if cost is not None else 0.0
        more = self._room(handler, processes, beside)
        return Portion(used.number, size.number, more, str(used) if self.is_automatic(name) else "")

    def _room(self, handler: Handler, processes: int, beside: float) -> int | None:
        """Return how many more messages of a handler may go out now; `None` for any number, if polls fail."""
        if self._fails_since is not None and self._clock() - self._fails_since >= WAIT_FOR_TIMES:
            return None
        name, queue = handler.name, self._queues[handler.queue]
        size, cost, unended = self._sizes[name], self._cost(name), self._unended[name]
        last = processes or self._processes_last.get(handler.queue, 0)
        if not last and self._awaits_worker(name, size):
            last = 1
        return find_queue_room(
            size,
            cost,
            # Without processes and measured times all handlers share the room of the queue.
            queue.count_at_most(name) if last or cost is not None else queue.length,
            last,
            self._weight(name, size),
            beside=beside,
            unended=unended.count if counts_until_ended(size, cost) and last else 0,
        )

    def _at_once(self, handler: Handler) -> int:
        """Return how many deliveries of a handler a process runs side by side."""
        if handler.concurrency == "auto":
            return self._known.get(handler.name, KnownCost()).at_once
        return handler.concurrency

    def _cost(self, name: str) -> DeliveryCost | None:
        return self._known.get(name, KnownCost()).cost

    def _lately(self, times: Mapping[str, float], within: float) -> dict[str, set[str]]:
        """Return the handlers of each queue whose time is at most so many seconds ago."""
        since = self._clock() - within
        found: dict[str, set[str]] = {}
        for handler in self._routes:
            if times.get(handler.name, since) > since:
                found.setdefault(handler.queue, set()).add(handler.name)
        return found

    def _weight(self, name: str, size: BatchSize) -> float:
        """Return the bytes of a message of a handler, by its latest records."""
        each = self._bytes.get(name, 0.0)
        return min(each * size.number, max(each, MESSAGE_BYTES))

    def _awaits_worker(self, name: str, size: BatchSize) -> bool:
        """Return whether a few messages wait for the first worker, since the size may grow once it runs."""
        if not size.grows or self._times is None:
            return False
        return self._clock() - self._waits_since.setdefault(name, self._clock()) < WAIT_FOR_TIMES

    def _count_processes(self) -> dict[str, int]:
        return count_processes(self._workers.living().values()) if self._workers is not None else {}


def _first_size(handler: Handler) -> BatchSize:
    """Return the batch size of a handler before the first poll."""
    if handler.batch == "auto":
        return find_batch_size(KnownCost(), 0)
    return BatchSize(handler.batch, handler.one_by_one or ("given as bulk=" if handler.is_bulk else "given as batch="))


def count_processes(workers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many processes consume each queue, as living workers announce."""
    counts: dict[str, int] = {}
    for state in workers:
        queues, processes = _read_queues(state), _read_processes(state)
        for queue in queues:
            counts[queue] = counts.get(queue, 0) + processes
    return counts


def _read_queues(state: Mapping[str, Any]) -> set[str]:
    """Return the queues that a worker announces."""
    queues = state.get("queues")
    return {queue for queue in queues if isinstance(queue, str)} if isinstance(queues, list) else set()


def _read_processes(state: Mapping[str, Any]) -> int:
    """Return the processes that a worker announces; 0 if the number makes no sense."""
    # An older worker announces none.
    processes = state.get("processes") or 1
    return processes if isinstance(processes, int) and 0 < processes <= MOST_PROCESSES else 0


def _fading_mean(before: float | None, each: float) -> float:
    """Return the fading mean; a larger value counts at once."""
    return each if before is None or each > before else 0.9 * before + 0.1 * each


def _format_error(error: Exception) -> str:
    return str(error) if isinstance(error, BridgeError) else f"{type(error).__name__}: {error}"


#: Seconds, and runs, after which a message that has not ended counts no more: it was purged, or waits for its retry.
COUNTS_FOR: Final = 2.0
COUNTS_FOR_RUNS: Final = 5


class UnendedMessages:
    """The messages of one handler that were handed off and have not ended: workers prefetch some."""

    def __init__(self) -> None:
        #: By account: the last offset of each message, and when it was handed off.
        self._messages: dict[Account, dict[int, float]] = {}

    def add(self, account: Account, last: int, now: float) -> None:
        """Add a message that was handed off.

        Parameters:
            last: the last offset that it carries, whose delivery starts last.
        """
        self._messages.setdefault(account, {})[last] = now

    @property
    def count(self) -> int:
        """Return how many messages have not ended."""
        return sum(map(len, self._messages.values()))

    def questions(self) -> Iterator[tuple[Account, Sequence[int]]]:
        """Yield the offsets whose fates tell which messages have ended."""
        for account, messages in self._messages.items():
            yield account, sorted(messages)

    def take_in_fates(self, account: Account, offsets: Sequence[int], fates: bytes) -> None:
        """Take in the fates of these offsets."""
        for offset, fate in zip(offsets, fates, strict=True):
            # What is open is carried by no message: it was opened again, or the ledger was wiped with the queue.
            if fate != Fate.HANDED:
                self._messages[account].pop(offset, None)

    def forget(self, now: float, takes: float | None) -> None:
        """Forget the messages that should have ended long ago.

        Parameters:
            takes: seconds that a message takes; `None` if unknown.
        """
        last = now - (COUNTS_FOR + COUNTS_FOR_RUNS * takes if takes is not None else PLACE_KNOWN_FOR)
        kept = {
            account: {offset: since for offset, since in messages.items() if since > last}
            for account, messages in self._messages.items()
        }
        self._messages = {account: messages for account, messages in kept.items() if messages}
