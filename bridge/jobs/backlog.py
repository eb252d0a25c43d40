"""The backlog of each queue and the consumer lag of each partition, and whether they grow (pure).

A delivery of the backlog has one of three states: ready in the broker, taken by a worker and not ended, due in Kafka
and not handed off. One that waits for its retry or for a gate has none, since no worker could run it now.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition

BacklogState = Literal["ready", "taken", "due"]
BACKLOG_STATES: Final[tuple[BacklogState, ...]] = ("ready", "taken", "due")
#: Deliveries by queue and handler.
QueueCounts = Mapping[str, Mapping[str, float]]


class Backlog(NamedTuple):
    """The deliveries of one queue in one state.

    Attributes:
        deliveries: how many.
        seconds: seconds that one process needs for them; `None` if some handler was never measured.
    """

    deliveries: float = 0.0
    seconds: float | None = 0.0


def measure_backlogs(
    queues: Iterable[str], ready: QueueCounts, taken: QueueCounts, due: QueueCounts, costs: Mapping[str, float | None]
) -> dict[tuple[str, BacklogState], Backlog]:
    """Return the backlog of each queue in each state.

    Parameters:
        ready, taken, due: deliveries by queue and handler.
        costs: measured seconds that a delivery takes a process, by handler.
    """
    by_state: dict[BacklogState, QueueCounts] = {"ready": ready, "taken": taken, "due": due}
    return {
        (queue, state): _measure_backlog(by_state[state].get(queue, {}), costs)
        for queue in queues
        for state in BACKLOG_STATES
    }


def _measure_backlog(counts: Mapping[str, float], costs: Mapping[str, float | None]) -> Backlog:
    present = {handler: count for handler, count in counts.items() if count}
    measured = [(count, costs.get(handler)) for handler, count in present.items()]
    known = [count * cost for count, cost in measured if cost is not None]
    return Backlog(sum(present.values()), sum(known) if len(known) == len(measured) else None)


def add_up_counts(announced: Iterable[object]) -> QueueCounts:
    """Return the sum of several announced counts, by queue and handler; what is no count is left out."""
    sums: dict[str, dict[str, float]] = {}
    for counts in announced:
        for queue, handler, count in _read_counts(counts):
            of_queue = sums.setdefault(queue, {})
            of_queue[handler] = of_queue.get(handler, 0.0) + count
    return sums


def _read_counts(announced: object) -> Iterator[tuple[str, str, float]]:
    for queue, handlers in _read_items(announced):
        for handler, count in _read_items(handlers):
            if isinstance(count, int | float) and count >= 0:
                yield queue, handler, count


def _read_items(announced: object) -> Iterable[tuple[str, Any]]:
    return announced.items() if isinstance(announced, Mapping) else ()


def backlog_to_data(
    backlogs: Mapping[tuple[str, BacklogState], Backlog],
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return backlogs as JSON: `deliveries` and `seconds` by queue and state."""
    data: dict[str, dict[str, dict[str, float | None]]] = {}
    for (queue, state), backlog in backlogs.items():
        seconds = None if backlog.seconds is None else round(backlog.seconds, 3)
        data.setdefault(queue, {})[state] = {"deliveries": round(backlog.deliveries), "seconds": seconds}
    return data


#: Seconds of history that growth is computed from, and that it needs at least.
GROWTH_HISTORY: Final = 60.0
GROWTH_NEEDS: Final = 30.0


class _Sample(NamedTuple):
    at: float
    deliveries: float
    seconds: float


class BacklogGrowth:
    """The growth of the backlog of each queue in the last minute.

    A backlog grows if it was larger in the middle of that time than at its start, and larger at its end than in the
    middle. A burst that workers reduce does not.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}
        self._since: dict[str, float] = {}

    def add_sample(self, backlog: Mapping[str, Mapping[str, Mapping[str, float | None]]], now: float) -> dict[str, Any]:
        """Take in a backlog as JSON; return `deliveries`, `seconds`, `rate` and `since` of each queue that grows.

        Parameters:
            now: Unix time.
        """
        growing = {}
        for queue, states in backlog.items():
            seconds = [each["seconds"] for each in states.values()]
            if any(each is None for each in seconds):
                self._samples.pop(queue, None)
                continue
            deliveries = sum(each["deliveries"] or 0.0 for each in states.values())
            samples = self._samples.setdefault(queue, deque())
            samples.append(_Sample(now, deliveries, sum(each or 0.0 for each in seconds)))
            while samples and now - samples[0].at > GROWTH_HISTORY:
                samples.popleft()
            rate = _growth_rate(samples)
            if rate <= 0:
                self._since.pop(queue, None)
                continue
            since = self._since.setdefault(queue, samples[0].at)
            last = samples[-1]
            growing[queue] = {
                "deliveries": round(last.deliveries),
                "seconds": round(last.seconds, 3),
                "rate": round(rate, 3),
                "since": since,
            }
        return growing


def _growth_rate(samples: deque[_Sample]) -> float:
    """Return the seconds of work by which a backlog grows each second; 0 if it does not, or that is unknown."""
    first, last = samples[0], samples[-1]
    if last.at - first.at < GROWTH_NEEDS:
        return 0.0
    middle = min(samples, key=lambda each: abs(each.at - (first.at + last.at) / 2))
    grows = first.deliveries < middle.deliveries < last.deliveries and first.seconds < last.seconds
    return (last.seconds - first.seconds) / (last.at - first.at) if grows else 0.0


def count_due_deliveries(
    partitions: Iterable[Partition],
    unread: Mapping[Place, int],
    ripe: Mapping[Place, int],
    routes: Routes,
    queue_of: Callable[[str], str],
    *,
    halted: Collection[str] = (),
    suspended: SuspendedHandlers = SuspendedHandlers(),  # noqa: B008
) -> dict[str, dict[str, float]]:
    """Return the deliveries that could run now if they were handed off, by queue and handler (pure).

    Parameters:
        unread: records of each source partition that were not read yet.
        ripe: the offset up to which records of each retry partition are due.
        halted: the halted topics.
        suspended: handlers of which nothing is handed off, and where.
    """
    due: dict[str, dict[str, float]] = {}
    for partition in partitions:
        if partition.source in halted:
            continue
        is_retry = isinstance(partition, RetryPartition)
        suspended_here = (suspended.find_parked if is_retry else suspended.find_down)(partition.source)
        for handler, count in _count_due(partition, unread, ripe, routes).items():
            if count and handler not in suspended_here:
                queue = due.setdefault(queue_of(handler), {})
                queue[handler] = queue.get(handler, 0.0) + count
    return due


def _count_due(
    partition: Partition, unread: Mapping[Place, int], ripe: Mapping[Place, int], routes: Routes
) -> dict[str, float]:
    if not isinstance(partition, RetryPartition):
        more = unread.get(partition.place, 0)
        return {handler: count + more for handler, count in partition.waiting.items()}
    counts: dict[str, float] = {**partition.ready}
    # The handlers of unread records are unknown: assume those of the read ones, or all alike.
    handlers = [handler.name for handler in routes.of(partition.source)]
    weights = {**counts} or dict.fromkeys(handlers, 1.0)
    more = max(0, ripe.get(partition.place, 0) - partition.offsets.window.stop)
    for handler, weight in weights.items():
        counts[handler] = counts.get(handler, 0.0) + more * weight / sum(weights.values())
    return counts


#: Seconds of a step, of which the lowest count is kept; and consecutive steps in which it must have grown.
STEP: Final = 60.0
GROWN: Final = 5
#: Steps that are remembered, to tell since when the lag grows.
REMEMBERED: Final = 60


class Lag(NamedTuple):
    """The records that were not read yet, and since when (Unix time) their number has grown."""

    records: int
    since: float


class _LagSteps:
    """The lowest count of each step: it falls while a partition catches up, and is 0 when it idles."""

    def __init__(self, at: float, count: int) -> None:
        self.begun, self.lowest = at, count
        self.past: deque[int] = deque(maxlen=REMEMBERED)

    def take_in(self, at: float, count: int) -> None:
        if at - self.begun >= STEP:
            self.past.append(self.lowest)
            self.begun, self.lowest = at, count
        self.lowest = min(self.lowest, count)

    def grown(self) -> int:
        """Return for how many consecutive steps the count was never 0 and never fell."""
        counts, steps = [*self.past, self.lowest], 0
        while steps < len(self.past) and 0 < counts[-2 - steps] <= counts[-1 - steps]:
            steps += 1
        return steps


class LagWatch:
    """The watch for growing lag, over the counts of the loop.

    Records that were read and are not settled do not count: they wait for workers. A catch-up, however long, does not
    count either, nor does a burst that is over within minutes.
    """

    def __init__(self) -> None:
        self._steps: dict[Place, _LagSteps] = {}

    def add_counts(self, unread: Mapping[Place, int], now: float) -> dict[Place, Lag]:
        """Take in how many records of each partition were not read yet; return the partitions whose lag grows.

        Parameters:
            now: Unix time.
        """
        known, self._steps = self._steps, {}
        growing = {}
        for place, count in unread.items():
            steps = self._steps[place] = known.get(place) or _LagSteps(now, count)
            steps.take_in(now, count)
            grown = steps.grown()
            if grown >= GROWN and steps.lowest > steps.past[-GROWN]:
                growing[place] = Lag(count, steps.begun - grown * STEP)
        return growing
