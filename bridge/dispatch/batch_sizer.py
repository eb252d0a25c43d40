"""The batch sizes in use: what is measured for them, and when."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.dispatch.batch_size_rule import (
    BatchSize,
    counts_until_ended,
    find_batch_size,
    find_queue_room,
    share_among_processes,
)
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import BridgeError
from bridge.handler_routes import Handler, Routes
from bridge.ledger import Account, Ledger
from bridge.ledger.fate_rules import UNSETTLED
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.handler_costs import DeliveryCost, HandlerCosts, KnownCost
from bridge.partitions.ordering import MESSAGE_BYTES, Portion

logger = logging.getLogger(__name__)

#: Seconds between two looks: while a size grows, and else.
GROWING_EVERY: Final = 0.05
LOOK_EVERY: Final = 0.1
#: Seconds between two looks at which workers live.
WORKERS_EVERY: Final = 1.0
#: Seconds for which another handler counts as one that uses the queue; and as one that would use more of it.
SHARED_FOR: Final = 60.0
FULL_FOR: Final = 5.0
#: Seconds for which hand-off waits for the first worker.
WAIT_FOR_TIMES: Final = 3.0
#: Seconds between two looks while they fail.
FAILED_EVERY: Final = 1.0
#: More processes than a worker has.
MOST_PROCESSES: Final = 10_000


class BatchSizer:
    """How many deliveries a message carries, and how many messages may be in a queue.

    Nothing is looked at while nothing is handed out.

    Parameters:
        ledger: `None` where there is no Redis for it: then no times are known, and no processes.
    """

    def __init__(
        self, routes: Routes, ledger: Ledger | None, broker: CeleryBroker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._routes, self._ledger, self._broker, self._clock = routes, ledger, broker, clock
        self._times = HandlerCosts(ledger) if ledger is not None else None
        self._workers = GroupMembers(ledger, "workers") if ledger is not None else None
        self._sizes = {handler.name: _first(handler) for handler in routes}
        self._in_use: dict[str, BatchSize] = {}
        self._known: dict[str, KnownCost] = {}
        self._lines = {queue: QueueOrder() for queue in routes.queues}
        #: What of a handler has not ended, where that counts.
        self._unended = {handler.name: Unended() for handler in routes}
        self._processes: dict[str, int] = {}
        #: How many there were when some were seen last.
        self._processes_last: dict[str, int] = {}
        #: Bytes of a delivery of a handler's, lately.
        self._bytes: dict[str, float] = {}
        #: When something of a handler was handed off last.
        self._handed_at: dict[str, float] = {}
        #: The last portion of each handler, and when one was used up last.
        self._portions: dict[str, Portion] = {}
        self._full_at: dict[str, float] = {}
        self._look_at = self._workers_at = 0.0
        #: Since when what a handler costs is waited for.
        self._waits_since: dict[str, float] = {}
        #: Since when looks fail.
        self._fails_since: float | None = None

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return bool(self._sizes) and self._clock() >= self._look_at

    def look(self) -> None:
        """See what handlers cost, what is in their queues, and who consumes them.

        Whatever goes wrong, all stays as it was: nothing rests on it, and hand-off least of all.
        """
        if not self.due:
            return
        try:
            self._see()
        except Exception as error:
            self._look_at = self._clock() + FAILED_EVERY
            if self._fails_since is None:
                self._fails_since = self._clock()
                logger.warning("the sizes of batches stay as they are; hand-off goes on: %s", _format_error(error))
        else:
            self._fails_since = None

    def _see(self) -> None:
        known = self._times.known(self._sizes) if self._times is not None else {}
        queued = self._broker.lengths(list(self._lines))
        now = self._clock()
        if now >= self._workers_at:
            self._processes = self._count_processes()
            self._processes_last |= self._processes
            self._workers_at = now + WORKERS_EVERY
        self._known = known
        for queue, length in queued.items():
            self._lines[queue].see(length, now)
        self._see_unended(now)
        self._sizes |= {
            handler.name: find_batch_size(known.get(handler.name, KnownCost()), self._sizes[handler.name].number)
            for handler in self._routes
            if self.finds(handler.name)
        }
        growing = any(size.grows or self._cost(name) is None for name, size in self._sizes.items())
        self._look_at = now + (GROWING_EVERY if growing else LOOK_EVERY)

    def _see_unended(self, now: float) -> None:
        """Forget what has ended."""
        if self._ledger is None:
            return
        asked = [(unended, *each) for unended in self._unended.values() for each in unended.questions()]
        fates = self._ledger.fates_of([(account, offsets) for _, account, offsets in asked]) if asked else []
        for (unended, account, offsets), found in zip(asked, fates, strict=True):
            unended.see(account, offsets, found)
        for name, unended in self._unended.items():
            cost = self._cost(name)
            unended.forget(now, self._sizes[name].number * cost.mean if cost is not None else None)

    def portions(self, ready: Mapping[str, int]) -> dict[str, Portion]:
        """What may be taken now.

        Parameters:
            ready: for each handler, the deliveries that may be handed out, and that several processes could share.
        """
        now, known = self._clock(), self._routes.handlers
        self._full_at |= {name: now for name, portion in self._portions.items() if portion.spent}
        busy, full = self._lately(self._handed_at, SHARED_FOR), self._lately(self._full_at, FULL_FOR)
        portions = {
            name: self._portion(known[name], count, _beside(known[name], busy, full))
            for name, count in ready.items()
            if name in known
        }
        self._portions = {name: portion for name, portion in portions.items() if ready[name]}
        return portions

    def handed(self, handler: str, messages: int, deliveries: int = 0, size: int = 0) -> None:
        """So many messages of a handler went into its queue since the last look.

        Parameters:
            size: bytes of keys, values and headers of all their deliveries.
        """
        self._handed_at[handler] = self._clock()
        if found := self._routes.handlers.get(handler):
            if deliveries:
                self._bytes[handler] = _fading_mean(self._bytes.get(handler), size / deliveries)
            self._lines[found.queue].add(handler, messages, self._clock())

    def went_out(self, handler: str, account: Account, offsets: Sequence[int]) -> None:
        """A message of a handler went into its queue, with deliveries whose fates are in an account."""
        if handler in self._sizes and counts_until_ended(self._sizes[handler], self._cost(handler)):
            self._unended[handler].add(account, offsets[-1], self._clock())

    def finds(self, handler: str) -> bool:
        """Whether the size of a handler's batches is found by itself."""
        return handler in self._sizes and self._routes.handlers[handler].batch == "auto"

    def most(self, handler: str) -> int:
        """How many deliveries a message to a handler may carry; one, where it is not known here."""
        return self._sizes[handler].number if handler in self._sizes else 1

    def run(self, handler: str) -> float | None:
        """Seconds that a delivery to a handler runs, without what its message costs besides, where that is known."""
        cost = self._cost(handler)
        return cost.seconds / cost.deliveries if cost is not None and cost.deliveries and cost.seconds > 0 else None

    def processes(self, queue: str) -> int:
        """How many processes consume a queue, as far as that is known."""
        return self._processes.get(queue, 0)

    def shown(self) -> dict[str, BatchSize]:
        """For each handler the size that was in use last, and why."""
        return self._sizes | self._in_use

    def _portion(self, handler: Handler, ready: int, beside: int) -> Portion:
        name = handler.name
        size, line = self._sizes[name], self._lines[handler.queue]
        processes = self._processes.get(handler.queue, 0)
        used = share_among_processes(size, ready, line.length, processes) if ready and self.finds(name) else size
        self._in_use[name] = used
        more = self._room(handler, processes, beside)
        return Portion(used.number, size.number, more, str(used) if self.finds(name) else "")

    def _room(self, handler: Handler, processes: int, beside: int) -> int | None:
        """Return how many more messages of a handler may go out now, `None` for any: hand-off does not wait for looks
        that fail.
        """
        if self._fails_since is not None and self._clock() - self._fails_since >= WAIT_FOR_TIMES:
            return None
        name, line = handler.name, self._lines[handler.queue]
        size, cost, unended = self._sizes[name], self._cost(name), self._unended[name]
        last = processes or self._processes_last.get(handler.queue, 0)
        if not last and self._awaits_worker(name, size):
            last = 1
        return find_queue_room(
            size,
            cost,
            # Where nobody is there, and nothing is known, all handlers share what may wait.
            line.of(name) if last or cost is not None else line.length,
            last,
            self._weight(name, size),
            beside=beside,
            unended=unended.count if counts_until_ended(size, cost) and last else 0,
        )

    def _cost(self, name: str) -> DeliveryCost | None:
        return self._known.get(name, KnownCost()).cost

    def _lately(self, times: Mapping[str, float], within: float) -> dict[str, set[str]]:
        """Return the handlers of each queue whose time is so many seconds ago at most."""
        since = self._clock() - within
        found: dict[str, set[str]] = {}
        for handler in self._routes:
            if times.get(handler.name, since) > since:
                found.setdefault(handler.queue, set()).add(handler.name)
        return found

    def _weight(self, name: str, size: BatchSize) -> float:
        """Bytes of a message of a handler's, as its records are lately."""
        each = self._bytes.get(name, 0.0)
        return min(each * size.number, max(each, MESSAGE_BYTES))

    def _awaits_worker(self, name: str, size: BatchSize) -> bool:
        """Whether the first worker is waited for with a few messages, as the size may grow once it is there."""
        if not size.grows or self._times is None:
            return False
        return self._clock() - self._waits_since.setdefault(name, self._clock()) < WAIT_FOR_TIMES

    def _count_processes(self) -> dict[str, int]:
        return count_processes(self._workers.living().values()) if self._workers is not None else {}


def _beside(handler: Handler, busy: Mapping[str, set[str]], full: Mapping[str, set[str]]) -> int:
    """Return how many handlers share the work that may wait in a queue: this one, and those that would have more of it
    there; 0 if nothing of another went into the queue lately.

    Parameters:
        busy: by queue, the handlers of which something was handed off lately.
        full: by queue, those that used up their portion lately.
    """
    if not busy.get(handler.queue, set()) - {handler.name}:
        return 0
    return 1 + len(full.get(handler.queue, set()) - {handler.name})


def _first(handler: Handler) -> BatchSize:
    """The size of a handler's batches before anything was looked at."""
    if handler.batch == "auto":
        return find_batch_size(KnownCost(), 0)
    return BatchSize(handler.batch, handler.one_by_one or "given as batch=")


def count_processes(workers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many processes consume each queue, as living workers say it."""
    counts: dict[str, int] = {}
    for state in workers:
        queues, processes = _read_queues(state), _read_processes(state)
        for queue in queues:
            counts[queue] = counts.get(queue, 0) + processes
    return counts


def _read_queues(state: Mapping[str, Any]) -> set[str]:
    """The queues that a worker says it consumes."""
    queues = state.get("queues")
    return {queue for queue in queues if isinstance(queue, str)} if isinstance(queues, list) else set()


def _read_processes(state: Mapping[str, Any]) -> int:
    """How many processes a worker says it has; none where that makes no sense."""
    # An older worker does not say it.
    said = state.get("processes") or 1
    return said if isinstance(said, int) and 0 < said <= MOST_PROCESSES else 0


def _fading_mean(before: float | None, each: float) -> float:
    """The mean of lately; what is larger than it counts at once."""
    return each if before is None or each > before else 0.9 * before + 0.1 * each


def _format_error(error: Exception) -> str:
    return str(error) if isinstance(error, BridgeError) else f"{type(error).__name__}: {error}"


#: Seconds after which a message counts as taken where others put theirs into the queue: its place is not known then.
PLACE_KNOWN_FOR: Final = 60.0
#: Seconds, and runs, after which a message no longer counts as one that has not ended: it was purged, or waits for its
#: retry.
COUNTS_FOR: Final = 10.0
COUNTS_FOR_RUNS: Final = 3


@dataclass(slots=True)
class _QueuedMessages:
    #: `None`: they were there before, and are anybody's.
    handler: str | None
    messages: int
    since: float


class QueueOrder:
    """What waits in one queue, the oldest first: what is taken from a queue is its oldest."""

    def __init__(self) -> None:
        self._some: deque[_QueuedMessages] = deque()
        self._seen = False
        #: Messages that wait, also those of others.
        self.length = 0

    def add(self, handler: str, messages: int, now: float) -> None:
        """This bridge put so many there."""
        self.length += messages
        self._some.append(_QueuedMessages(handler, messages, now))

    def see(self, length: int, now: float) -> None:
        """So many are there now; what was taken of ours is what is oldest."""
        if not self._seen:
            self._seen = True
            self._some.appendleft(_QueuedMessages(None, max(0, length - self._known()), now))
        self.length = length
        over = self._known() - length
        while self._some and (over > 0 or (over < 0 and now - self._some[0].since > PLACE_KNOWN_FOR)):
            first = self._some[0]
            gone = min(first.messages, over) if over > 0 else first.messages
            first.messages -= gone
            over -= gone
            if not first.messages:
                self._some.popleft()

    def of(self, handler: str) -> int:
        """How many of them a handler has at the most."""
        return sum(some.messages for some in self._some if some.handler in (None, handler))

    def _known(self) -> int:
        return sum(some.messages for some in self._some)


class Unended:
    """The messages of one handler that this bridge handed off and that have not ended: a worker takes some ahead."""

    def __init__(self) -> None:
        #: For each message the last offset that it carries, and when it was handed off.
        self._messages: dict[Account, dict[int, float]] = {}

    def add(self, account: Account, last: int, now: float) -> None:
        """A message was handed off.

        Parameters:
            last: the last offset that it carries: a message runs its deliveries in order.
        """
        self._messages.setdefault(account, {})[last] = now

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(map(len, self._messages.values()))

    def questions(self) -> Iterator[tuple[Account, Sequence[int]]]:
        """Yield the offsets whose fates say which messages have ended."""
        for account, messages in self._messages.items():
            yield account, sorted(messages)

    def see(self, account: Account, offsets: Sequence[int], fates: bytes) -> None:
        """Take in the fates of offsets that were asked for."""
        for offset, fate in zip(offsets, fates, strict=True):
            if fate not in UNSETTLED:
                self._messages[account].pop(offset, None)

    def forget(self, now: float, takes: float | None) -> None:
        """Forget the messages that should have ended long ago.

        Parameters:
            takes: seconds that a message takes, `None` if it is not known.
        """
        last = now - (COUNTS_FOR + COUNTS_FOR_RUNS * takes if takes is not None else PLACE_KNOWN_FOR)
        kept = {
            account: {offset: since for offset, since in messages.items() if since > last}
            for account, messages in self._messages.items()
        }
        self._messages = {account: messages for account, messages in kept.items() if messages}
