"""What Kafka has for the handlers and nobody has handed off, of the partitions of one bridge."""

from collections.abc import Callable, Collection, Iterable, Mapping

from bridge.handlers import Routes
from bridge.handoff.keeping import Kept
from bridge.partitions.parked import ParkedPartition
from bridge.partitions.partition import Partition
from bridge.records.place import Place


def due(
    partitions: Iterable[Partition],
    unread: Mapping[Place, int],
    ripe: Mapping[Place, int],
    routes: Routes,
    queue_of: Callable[[str], str],
    *,
    halted: Collection[str] = (),
    kept: Kept = Kept(),  # noqa: B008
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
        held = kept.parked if isinstance(partition, ParkedPartition) else kept.down
        for handler, count in _of(partition, unread, ripe, routes).items():
            if count and handler not in held:
                queue = found.setdefault(queue_of(handler), {})
                queue[handler] = queue.get(handler, 0.0) + count
    return found


def _of(
    partition: Partition, unread: Mapping[Place, int], ripe: Mapping[Place, int], routes: Routes
) -> dict[str, float]:
    if not isinstance(partition, ParkedPartition):
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
