"""How many deliveries one message of Celery's carries where no number is given (`batch="auto"`): the rule (pure).

As many as take `WITHIN` by the handler's own times, doubling at most from look to look; and never so many that one
process has them while another is idle.
"""

from math import ceil, sqrt
from typing import Final, NamedTuple

from bridge.ledger.handler_costs import DeliveryCost, KnownCost

#: Seconds that a batch may take.
WITHIN: Final = 0.05
#: Most deliveries of a batch.
MOST: Final = 500
#: Messages that each process that consumes the queue is to have.
EACH: Final = 2
#: Seconds after a lost process for which its handler's deliveries go one by one.
LOST_FOR: Final = 15.0
#: Most deliveries of a batch, and seconds for which, once a run was slow: all that is behind such a one waits for it.
FEW: Final = 5
SLOW_FOR: Final = 300.0
#: Messages of a handler of which nothing is known: for each process, those that run included; and messages in the
#: queue where no process is there, of all handlers.
UNKNOWN_EACH: Final = 4
UNKNOWN_IN_ALL: Final = 1_000
#: What is in the queue at most once the size is found: messages that take each process so many seconds (at least one
#: for each). Handlers that use one queue share fewer seconds. And so many deliveries in all, or so many messages for
#: each process, if that is more.
WORK_EACH: Final = 5.0
WORK_BESIDE: Final = 1.0
MOST_AHEAD: Final = 200_000
MOST_EACH: Final = 50
#: Seconds from which on a message counts until it has ended, not only until a worker has taken it: a worker takes four
#: for each process ahead, and of such messages these are as much work as all that may wait.
COUNTS_FROM: Final = 0.1
#: Bytes of keys, values and headers of one handler's in a queue at most; or a message for each process.
BYTES_AHEAD: Final = 256_000_000
#: Seconds of work for each process that are in the queue at most while the size doubles: what is there is of the old.
AHEAD: Final = 0.2


class BatchSize(NamedTuple):
    """How many, and why; `grows` while it is to be more with the next look."""

    number: int
    why: str
    grows: bool = False

    def __str__(self) -> str:
        return f"{self.number}: {self.why}"


def find_batch_size(known: KnownCost, before: int) -> BatchSize:
    """The size by what a handler's deliveries cost.

    Parameters:
        before: the size by the last look; 0 before the first.
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
    """The size that lets every process have some of what waits.

    Parameters:
        ready: deliveries that wait to be handed out.
        queued: messages that wait in the queue already.
        processes: that consume it.
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

    What is in the queue has the size that it has: while the size grows there is little of it, and never so much that a
    handler which grows slow has large batches of it for long, or that the broker's memory is full of them.

    Parameters:
        queued: of this handler's, that wait there: it does not wait for those of others.
        processes: that consume the queue, or did last; 0 if none was seen.
        weighs: bytes of one of its messages; 0 where nothing is known.
        beside: how many handlers share the queue's work, this one included; 0 if no other uses it.
        unended: this handler's messages that have not ended, those that workers have taken included; 0 if they do not
            count.
    """
    most = _most_queued(size, cost, processes, beside)
    if weighs:
        most = min(most, max(1, processes, int(BYTES_AHEAD / weighs)))
    # What runs comes on top, but for a handler of which nothing is known.
    return max(0, min(most - queued, most + (processes if cost is not None else 0) - unended))


def counts_until_ended(size: BatchSize, cost: DeliveryCost | None) -> bool:
    """Return whether a handler's messages count until they have ended."""
    return cost is None or size.number * cost.mean >= COUNTS_FROM


def _most_queued(size: BatchSize, cost: DeliveryCost | None, processes: int, beside: int) -> int:
    """Return how many of its messages wait in the queue at most, whatever they weigh."""
    if cost is None:
        return UNKNOWN_EACH * processes if processes else UNKNOWN_IN_ALL
    each, sharing, takes = max(1, processes), max(1, beside), max(size.number * cost.mean, 1e-6)
    if size.grows:
        return ceil(AHEAD / takes) * each
    seconds = WORK_BESIDE / sharing if beside else WORK_EACH
    # Enough for every process, from all of those that share the queue together.
    work = max(ceil(seconds * each / takes), ceil(each / sharing))
    return min(work, max(MOST_AHEAD // size.number, MOST_EACH * each))


def _largest_batch(cost: DeliveryCost) -> int:
    """The largest number whose batch takes `WITHIN`, as it mostly does: n times the mean, and a deviation of n of them.

    One that is mostly quick and now and then very slow goes in small batches: what is behind the slow one waits.
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
    """Two digits that count, and never as a power of ten."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"
