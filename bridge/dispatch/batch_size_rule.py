"""The rule for automatic batch sizes (`batch="auto"`): how many deliveries a Celery message carries (pure).

A batch takes `WITHIN` by the handler's measured times. The size at most doubles from poll to poll, and no process has
deliveries that another, idle one could run.
"""

from math import ceil, sqrt
from typing import Final, NamedTuple

from bridge.ledger.handler_costs import DeliveryCost, KnownCost

#: Seconds that a batch may take.
WITHIN: Final = 0.05
#: Most deliveries of a batch.
MOST: Final = 500
#: Messages for each process that consumes the queue.
EACH: Final = 2
#: Seconds after a lost process during which its handler's deliveries go one by one.
LOST_FOR: Final = 15.0
#: Most deliveries of a batch after a slow run, and for how many seconds: those behind a slow one wait for it.
FEW: Final = 5
SLOW_FOR: Final = 300.0
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


class BatchSize(NamedTuple):
    """The batch size of a handler and its reason; `grows` while the next poll may raise it."""

    number: int
    why: str
    grows: bool = False

    def __str__(self) -> str:
        return f"{self.number}: {self.why}"


def find_batch_size(known: KnownCost, before: int) -> BatchSize:
    """Return the batch size for the measured cost of a handler's deliveries.

    Parameters:
        before: the size at the last poll; 0 before the first.
    """
    if known.lost is not None and known.lost < LOST_FOR:
        return BatchSize(1, "a process was lost with one of its messages", grows=True)
    if known.cost is None:
        return BatchSize(1, "its times are not known yet", grows=True)
    most, why = _largest_batch(known.cost), _format_cost(known.cost)
    if most > FEW and known.slow is not None and known.slow < SLOW_FOR:
        most, why = FEW, f"{why}, and one took very long lately"
    if most > 2 * before:
        return BatchSize(max(1, 2 * before), f"doubling, {why}", grows=True)
    return BatchSize(most, why)


def share_among_processes(size: BatchSize, ready: int, queued: int, processes: int) -> BatchSize:
    """Return the size that gives every process some of the waiting deliveries.

    Parameters:
        ready: deliveries that wait to be handed out.
        queued: messages that already wait in the queue.
        processes: processes that consume it.
    """
    wanted = EACH * max(1, processes) - queued
    if size.number == 1 or wanted <= 0 or ready // wanted >= size.number:
        return size
    return BatchSize(max(1, ready // wanted), f"{max(1, processes)} processes share {ready} that wait", size.grows)


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

    Queued messages keep their size. So few are queued while the size grows, and never so many that a handler which
    becomes slow has large batches for long, or that they fill the broker's memory.

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


def _largest_batch(cost: DeliveryCost) -> int:
    """Return the largest batch that takes `WITHIN`: n times the mean, and a deviation of n of them.

    A handler that is mostly quick and sometimes very slow has small batches: those behind a slow delivery wait.
    """
    mean, spread = max(cost.mean, 1e-9), cost.spread
    root = (sqrt(spread * spread + 4 * mean * WITHIN) - spread) / (2 * mean)
    return max(1, min(MOST, int(root * root + 1e-6)))


def _format_cost(cost: DeliveryCost) -> str:
    found = f"{_format_seconds(cost.mean)} each"
    return f"{found}, give or take {_format_seconds(cost.spread)}" if cost.spread > 2 * cost.mean else found


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{_two_digits(seconds)} s"
    return f"{_two_digits(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_two_digits(seconds * 1e6)} µs"


def _two_digits(number: float) -> str:
    """Return a number with two significant digits, never as a power of ten."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"
