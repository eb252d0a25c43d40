"""The room in a queue: how many more of a handler's messages may go into the Celery queue now (pure).

Queued messages keep their size. So few are queued while the size grows, and never so many that a handler which becomes
slow has large batches for long, or that they fill the broker's memory.
"""

from math import ceil
from typing import Final

from bridge.dispatch.batch_size_rule import BatchSize
from bridge.ledger.handler_costs import DeliveryCost

#: Messages of a handler without measured times: for each process, running ones included; and in the queue of all
#: handlers together, if no process consumes it.
UNKNOWN_EACH: Final = 4
UNKNOWN_IN_ALL: Final = 1_000
#: Most work in the queue once the size is found: seconds for each process (at least one message for each), fewer if
#: handlers share the queue; and most deliveries in all, or most messages for each process, if that is more.
WORK_EACH: Final = 5.0
WORK_BESIDE: Final = 1.0
MOST_AHEAD: Final = 200_000
MOST_EACH: Final = 50
#: Seconds of a message from which on it counts until it has ended, not only until a worker has taken it: a worker
#: prefetches four for each process, and such messages are as much work as all that may wait.
COUNTS_FROM: Final = 0.1
#: Most bytes of keys, values and headers of one handler in a queue; or a message for each process.
BYTES_AHEAD: Final = 256_000_000
#: Most seconds of work for each process in the queue while the size doubles: queued messages have the old size.
AHEAD: Final = 0.2


def find_queue_room(
    size: BatchSize,
    cost: DeliveryCost | None,
    queued: int,
    processes: int,
    weighs: float = 0.0,
    *,
    beside: int = 0,
    unended: int = 0,
) -> int:
    """Return how many more of a handler's messages may go into the queue now.

    Parameters:
        queued: this handler's messages in the queue: it does not wait for those of others.
        processes: processes that consume the queue, or did last; 0 if none was seen.
        weighs: bytes of one of its messages; 0 if unknown.
        beside: how many handlers share the queue's work, this one included; 0 if no other uses it.
        unended: this handler's messages that have not ended, taken ones included; 0 if they do not count.
    """
    most = _most_queued(size, cost, processes, beside)
    if weighs:
        most = min(most, max(1, processes, int(BYTES_AHEAD / weighs)))
    # Running messages come on top, but for a handler without measured times.
    return max(0, min(most - queued, most + (processes if cost is not None else 0) - unended))


def counts_until_ended(size: BatchSize, cost: DeliveryCost | None) -> bool:
    """Return whether a handler's messages count until they have ended."""
    return cost is None or size.number * cost.mean >= COUNTS_FROM


def _most_queued(size: BatchSize, cost: DeliveryCost | None, processes: int, beside: int) -> int:
    """Return the most messages of a handler in the queue, whatever their bytes."""
    if cost is None:
        return UNKNOWN_EACH * processes if processes else UNKNOWN_IN_ALL
    each, sharing, takes = max(1, processes), max(1, beside), max(size.number * cost.mean, 1e-6)
    if size.grows:
        return ceil(AHEAD / takes) * each
    seconds = WORK_BESIDE / sharing if beside else WORK_EACH
    # Enough for every process, from all handlers of the queue together.
    work = max(ceil(seconds * each / takes), ceil(each / sharing))
    return min(work, max(MOST_AHEAD // size.number, MOST_EACH * each))
