"""The backlog of each queue, in deliveries and in seconds of work, and how fast it grows (pure).

Each delivery is in one of three states: ready in the broker, taken by a worker and not ended, due in Kafka and not
handed off. A delivery that waits for its retry or for a gate is in none of them, since no worker could run it now.
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
#: By queue and handler.
QueueCounts = Mapping[str, Mapping[str, float]]


class Backlog(NamedTuple):
    """What one queue has in one state.

    Attributes:
        deliveries: how many.
        seconds: that one process needs for them; `None`: of some handler it was never measured.
    """

    deliveries: float = 0.0
    seconds: float | None = 0.0


def measure_backlogs(
    queues: Iterable[str], ready: QueueCounts, taken: QueueCounts, due: QueueCounts, costs: Mapping[str, float | None]
) -> dict[tuple[str, BacklogState], Backlog]:
    """How much there is.

    Parameters:
        ready, taken, due: deliveries by queue and handler.
        costs: seconds that a delivery takes a process, by handler, as far as they were measured.
    """
    found: dict[BacklogState, QueueCounts] = {"ready": ready, "taken": taken, "due": due}
    return {
        (queue, state): _measure_backlog(found[state].get(queue, {}), costs)
        for queue in queues
        for state in BACKLOG_STATES
    }


def _measure_backlog(counts: Mapping[str, float], costs: Mapping[str, float | None]) -> Backlog:
    there = {handler: count for handler, count in counts.items() if count}
    each = [(count, costs.get(handler)) for handler, count in there.items()]
    known = [count * cost for count, cost in each if cost is not None]
    return Backlog(sum(there.values()), sum(known) if len(known) == len(each) else None)


def add_up_counts(said: Iterable[object]) -> QueueCounts:
    """The sum of what several have announced, by queue and handler; what is no count is left out."""
    sums: dict[str, dict[str, float]] = {}
    for each in said:
        for queue, handler, count in _read_counts(each):
            of_queue = sums.setdefault(queue, {})
            of_queue[handler] = of_queue.get(handler, 0.0) + count
    return sums


def _read_counts(said: object) -> Iterator[tuple[str, str, float]]:
    for queue, handlers in _read_items(said):
        for handler, count in _read_items(handlers):
            if isinstance(count, int | float) and count >= 0:
                yield queue, handler, count


def _read_items(said: object) -> Iterable[tuple[str, Any]]:
    return said.items() if isinstance(said, Mapping) else ()


def backlog_to_data(found: Mapping[tuple[str, BacklogState], Backlog]) -> dict[str, dict[str, dict[str, float | None]]]:
    """The same as JSON: per queue and state `deliveries` and `seconds`."""
    made: dict[str, dict[str, dict[str, float | None]]] = {}
    for (queue, state), each in found.items():
        seconds = None if each.seconds is None else round(each.seconds, 3)
        made.setdefault(queue, {})[state] = {"deliveries": round(each.deliveries), "seconds": seconds}
    return made


#: Seconds of history that are looked at, and that there must be before anything is said.
GROWTH_LOOKED_AT: Final = 60.0
GROWTH_NEEDS: Final = 30.0


class _Sample(NamedTuple):
    at: float
    deliveries: float
    seconds: float


class BacklogGrowth:
    """What a bridge saw of each queue, of the last minute.

    The backlog grows if it was more in the middle of that time than at its beginning, and more at its end than in its
    middle: a burst that workers make less of does not.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}
        self._since: dict[str, float] = {}

    def look(self, backlog: Mapping[str, Mapping[str, Mapping[str, float | None]]], now: float) -> dict[str, Any]:
        """Take in a backlog, as `shown` has it; return by queue `deliveries`, `seconds`, `rate` and `since`.

        Parameters:
            now: Unix time.
        """
        found = {}
        for queue, states in backlog.items():
            seconds = [each["seconds"] for each in states.values()]
            if any(each is None for each in seconds):
                self._samples.pop(queue, None)
                continue
            deliveries = sum(each["deliveries"] or 0.0 for each in states.values())
            samples = self._samples.setdefault(queue, deque())
            samples.append(_Sample(now, deliveries, sum(each or 0.0 for each in seconds)))
            while samples and now - samples[0].at > GROWTH_LOOKED_AT:
                samples.popleft()
            rate = _growth_rate(samples)
            if rate <= 0:
                self._since.pop(queue, None)
                continue
            since = self._since.setdefault(queue, samples[0].at)
            last = samples[-1]
            found[queue] = {
                "deliveries": round(last.deliveries),
                "seconds": round(last.seconds, 3),
                "rate": round(rate, 3),
                "since": since,
            }
        return found


def _growth_rate(samples: deque[_Sample]) -> float:
    """Seconds of work by which it grows in a second; 0: it does not, or nobody knows."""
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
    """Deliveries that could run now if they were handed off, by queue and handler (pure).

    Parameters:
        unread: records of each partition of a source that were not read yet.
        ripe: of partitions of retry topics, up to which offset records are due.
        halted: topics of which nothing runs.
        kept: handlers of which nothing is handed off, and where.
    """
    found: dict[str, dict[str, float]] = {}
    for partition in partitions:
        if partition.source in halted:
            continue
        held = suspended.parked if isinstance(partition, RetryPartition) else suspended.down
        for handler, count in _count_due(partition, unread, ripe, routes).items():
            if count and handler not in held:
                queue = found.setdefault(queue_of(handler), {})
                queue[handler] = queue.get(handler, 0.0) + count
    return found


def _count_due(
    partition: Partition, unread: Mapping[Place, int], ripe: Mapping[Place, int], routes: Routes
) -> dict[str, float]:
    if not isinstance(partition, RetryPartition):
        more = unread.get(partition.place, 0)
        return {handler: count + more for handler, count in partition.waiting.items()}
    counts: dict[str, float] = {**partition.ready}
    # Whose those are that were not read is not known: as those that were, or of all handlers alike.
    handlers = [handler.name for handler in routes.of(partition.source)]
    weights = {**counts} or dict.fromkeys(handlers, 1.0)
    more = max(0, ripe.get(partition.place, 0) - partition.offsets.window.stop)
    for handler, weight in weights.items():
        counts[handler] = counts.get(handler, 0.0) + more * weight / sum(weights.values())
    return counts
