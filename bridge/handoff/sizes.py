"""The sizes of batches that are found by themselves: what is looked at for them, and when."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bridge.errors import BridgeError
from bridge.handlers import Handler, Routes
from bridge.handoff.broker import Broker
from bridge.handoff.line import Line
from bridge.handoff.size import Size, by_times, room, shared
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.ledger.times import Known, Times
from bridge.partitions.turns import MESSAGE_BYTES, Portion

logger = logging.getLogger(__name__)

#: Seconds between two looks: while a size grows, and else.
GROWING_EVERY: Final = 0.05
LOOK_EVERY: Final = 0.1
#: Seconds between two looks at which workers live.
WORKERS_EVERY: Final = 1.0
#: Seconds for which another handler counts as one that uses the queue.
SHARED_FOR: Final = 60.0
#: Seconds for which hand-off waits for the first worker.
WAIT_FOR_TIMES: Final = 3.0
#: Seconds between two looks while they fail.
FAILED_EVERY: Final = 1.0
#: More processes than a worker has.
MOST_PROCESSES: Final = 10_000


class Sizes:
    """The sizes of those handlers for which no number is given; nothing is looked at while nothing is handed out.

    Parameters:
        ledger: `None` where there is no Redis for it: then no times are known.
    """

    def __init__(
        self, routes: Routes, ledger: Ledger | None, broker: Broker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._routes, self._broker, self._clock = routes, broker, clock
        self._times = Times(ledger) if ledger is not None else None
        self._workers = Members(ledger, "workers") if ledger is not None else None
        self._auto = {handler.name: handler for handler in routes if handler.batch == "auto"}
        self._queues = sorted({handler.queue for handler in self._auto.values()})
        self._sizes = {name: Size(1, "its times are not known yet", grows=True) for name in self._auto}
        self._in_use: dict[str, Size] = {}
        self._known: dict[str, Known] = {}
        self._lines = {queue: Line() for queue in self._queues}
        self._processes: dict[str, int] = {}
        #: Bytes of a delivery of a handler's, lately.
        self._bytes: dict[str, float] = {}
        #: When something of a handler was handed off last.
        self._handed_at: dict[str, float] = {}
        self._look_at = self._workers_at = 0.0
        #: Since when what a handler costs is waited for.
        self._waits_since: dict[str, float] = {}
        #: Since when looks fail.
        self._fails_since: float | None = None

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return self._times is not None and bool(self._auto) and self._clock() >= self._look_at

    def look(self) -> None:
        """See what handlers cost, what is in their queues, and who consumes them.

        Whatever goes wrong, all stays as it was: nothing rests on it, and hand-off least of all.
        """
        if not self.due or self._times is None:
            return
        try:
            self._see(self._times)
        except Exception as error:
            self._look_at = self._clock() + FAILED_EVERY
            if self._fails_since is None:
                self._fails_since = self._clock()
                logger.warning("the sizes of batches stay as they are; hand-off goes on: %s", _words(error))
        else:
            self._fails_since = None

    def _see(self, times: Times) -> None:
        known = times.known(self._auto)
        queued = self._broker.lengths(self._queues)
        if self._clock() >= self._workers_at:
            self._processes = self._count_processes()
            self._workers_at = self._clock() + WORKERS_EVERY
        self._known = known
        for queue, length in queued.items():
            self._lines[queue].see(length, self._clock())
        self._sizes = {name: by_times(known[name], self._sizes[name].number) for name in self._auto}
        growing = any(size.grows for size in self._sizes.values())
        self._look_at = self._clock() + (GROWING_EVERY if growing else LOOK_EVERY)

    def portions(self, ready: Mapping[str, int]) -> dict[str, Portion]:
        """What may be taken now.

        Parameters:
            ready: for each handler, the deliveries that may be handed out, and that several processes could share.
        """
        return {name: self._portion(self._auto[name], count) for name, count in ready.items() if name in self._auto}

    def handed(self, handler: str, messages: int, deliveries: int = 0, size: int = 0) -> None:
        """So many messages of a handler went into its queue since the last look.

        Parameters:
            size: bytes of keys, values and headers of all their deliveries.
        """
        self._handed_at[handler] = self._clock()
        if found := self._auto.get(handler):
            if deliveries:
                self._bytes[handler] = _fading(self._bytes.get(handler), size / deliveries)
            self._lines[found.queue].add(handler, messages, self._clock())

    def finds(self, handler: str) -> bool:
        """Whether the size of a handler's batches is found by itself."""
        return handler in self._auto

    def most(self, handler: str) -> int:
        """How many deliveries a message to a handler may carry; one, where it is not known here."""
        if handler in self._sizes:
            return self._sizes[handler].number
        given = self._routes.handlers.get(handler)
        return given.batch if given is not None and isinstance(given.batch, int) else 1

    def run(self, handler: str) -> float | None:
        """Seconds that a delivery to a handler runs, without what its message costs besides, where that is known."""
        cost = self._known.get(handler, Known()).cost
        return cost.seconds / cost.deliveries if cost is not None and cost.deliveries and cost.seconds > 0 else None

    def processes(self, queue: str) -> int:
        """How many processes consume a queue, as far as that is known."""
        return self._processes.get(queue, 0)

    def shown(self) -> dict[str, Size]:
        """For each handler the size that was in use last, and why."""
        given = {h.name: Size(h.batch, "given as batch=") for h in self._routes if isinstance(h.batch, int)}
        return given | {name: self._in_use.get(name, size) for name, size in self._sizes.items()} | self._alone()

    def _alone(self) -> dict[str, Size]:
        return {h.name: Size(1, h.one_by_one) for h in self._routes if h.one_by_one}

    def _portion(self, handler: Handler, ready: int) -> Portion:
        size, line = self._sizes[handler.name], self._lines[handler.queue]
        processes = self._processes.get(handler.queue, 0)
        used = self._in_use[handler.name] = shared(size, ready, line.length, processes) if ready else size
        known = self._known.get(handler.name, Known())
        more = None
        if self._waits(handler.name, size, known, processes):
            weight, beside = self._weight(handler.name, size), self._is_shared(handler)
            more = room(size, known.cost, line.of(handler.name), processes, weight, beside=beside)
        return Portion(used.number, size.number, more, str(used))

    def _is_shared(self, handler: Handler) -> bool:
        """Whether something of another handler went into the queue lately."""
        since = self._clock() - SHARED_FOR
        others = (each.name for each in self._routes if each.queue == handler.queue and each.name != handler.name)
        return any(self._handed_at.get(name, since) > since for name in others)

    def _weight(self, name: str, size: Size) -> float:
        """Bytes of a message of a handler's, as its records are lately."""
        each = self._bytes.get(name, 0.0)
        return min(each * size.number, max(each, MESSAGE_BYTES))

    def _waits(self, name: str, size: Size, known: Known, processes: int) -> bool:
        """Whether hand-off may wait for the queue to be shorter, or the size to grow.

        Not for looks that fail, and for growth not for workers that are not there. Workers that tell no times may be at
        a first run that takes long.
        """
        if self._times is None:
            return False
        if self._fails_since is not None and self._clock() - self._fails_since >= WAIT_FOR_TIMES:
            return False
        if not size.grows:
            return True
        if processes:
            self._waits_since.pop(name, None)
            return True
        return self._clock() - self._waits_since.setdefault(name, self._clock()) < WAIT_FOR_TIMES

    def _count_processes(self) -> dict[str, int]:
        assert self._workers is not None
        return processes_of(self._workers.living().values())


def processes_of(workers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many processes consume each queue, as living workers say it."""
    counts: dict[str, int] = {}
    for state in workers:
        queues, processes = _consumed(state), _processes(state)
        for queue in queues:
            counts[queue] = counts.get(queue, 0) + processes
    return counts


def _consumed(state: Mapping[str, Any]) -> set[str]:
    """The queues that a worker says it consumes."""
    queues = state.get("queues")
    return {queue for queue in queues if isinstance(queue, str)} if isinstance(queues, list) else set()


def _processes(state: Mapping[str, Any]) -> int:
    """How many processes a worker says it has; none where that makes no sense."""
    # An older worker does not say it.
    said = state.get("processes") or 1
    return said if isinstance(said, int) and 0 < said <= MOST_PROCESSES else 0


def _fading(before: float | None, each: float) -> float:
    """The mean of lately; what is larger than it counts at once."""
    return each if before is None or each > before else 0.9 * before + 0.1 * each


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, BridgeError) else f"{type(error).__name__}: {error}"
