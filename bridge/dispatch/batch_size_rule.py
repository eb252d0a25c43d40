"""The rule for automatic batch sizes (`batch="auto"`): how many deliveries a Celery message carries (pure).

A batch takes `WITHIN` by the handler's measured times, and more if its deliveries wait much longer than that anyway.
From poll to poll the size at most doubles, or grows to as many deliveries as the times were measured of. No process has
deliveries that another, idle one could run.
"""

from math import sqrt
from typing import Final, NamedTuple

from bridge.ledger.handler_costs import DeliveryCost, KnownCost

#: Seconds that a batch may take.
WITHIN: Final = 0.05
#: Most seconds of a batch of a quick handler while more of its deliveries wait than its processes keep up with: this
#: part of the wait. Fewer messages are then less work, for the machine and for what waits.
WITHIN_BACKLOG: Final = 0.25
PART_OF_WAIT: Final = 0.1
#: The same if a process runs them side by side, by the time of the runs alone: those behind a slow one do not wait for
#: it, but the process does, and then the more it has done meanwhile the better.
WITHIN_BESIDE: Final = 0.1
#: Most deliveries of a batch.
MOST: Final = 500
#: Messages for each process that consumes the queue; one if a process runs the deliveries of a message side by side.
EACH: Final = 2
EACH_BESIDE: Final = 1
#: Seconds after a lost process during which its handler's deliveries go one by one.
LOST_FOR: Final = 15.0
#: Most deliveries of a batch after a slow run, and for how many seconds: those behind a slow one wait for it.
FEW: Final = 5
SLOW_FOR: Final = 300.0


class BatchSize(NamedTuple):
    """The batch size of a handler and its reason; `grows` while the next poll may raise it."""

    number: int
    why: str
    grows: bool = False

    def __str__(self) -> str:
        return f"{self.number}: {self.why}"


def find_batch_size(known: KnownCost, before: int, at_once: int = 1, wait: float = 0.0) -> BatchSize:
    """Return the batch size for the measured cost of a handler's deliveries.

    Parameters:
        before: the size at the last poll; 0 before the first.
        at_once: how many deliveries a process runs side by side: so many take no longer than one.
        wait: seconds until all of its deliveries that are ready have run.
    """
    if known.lost is not None and known.lost < LOST_FOR:
        return BatchSize(1, "a process was lost with one of its messages", grows=True)
    if known.cost is None:
        return BatchSize(1, "its times are not known yet", grows=True)
    within = max(WITHIN, min(WITHIN_BACKLOG, wait * PART_OF_WAIT)) if _is_quick(known.cost) else WITHIN
    most, why = _largest_batch(known.cost, within), _format_cost(known.cost)
    if within > WITHIN and most > 1:
        why = f"{why}, and {_format_seconds(wait)} of them wait"
    if at_once > 1:
        most, why = max(most, _largest_beside(known.cost, at_once)), f"{why}, {at_once} side by side"
    elif most > FEW and known.slow is not None and known.slow < SLOW_FOR:
        most, why = FEW, f"{why}, and one took very long lately"
    sure = max(1, 2 * before, int(known.cost.deliveries))
    if most > sure:
        return BatchSize(sure, f"growing, {why}", grows=True)
    # After a leap little goes out until the next poll: the times may be of the last run.
    return BatchSize(most, why, grows=most > max(1, 2 * before))


def share_among_processes(size: BatchSize, ready: int, queued: int, processes: int, at_once: int = 1) -> BatchSize:
    """Return the size that gives every process some of the waiting deliveries.

    Parameters:
        ready: deliveries that wait to be handed out.
        queued: messages that already wait in the queue.
        processes: processes that consume it.
        at_once: as for `find_batch_size`.
    """
    wanted = (EACH_BESIDE if at_once > 1 else EACH) * max(1, processes) - queued
    if size.number == 1 or wanted <= 0 or ready // wanted >= size.number:
        return size
    return BatchSize(max(1, ready // wanted), f"{max(1, processes)} processes share {ready} that wait", size.grows)


def _is_quick(cost: DeliveryCost) -> bool:
    """Return whether a message is worth batching: two runs take no longer than a batch may."""
    return 2 * cost.seconds <= WITHIN * cost.deliveries


def _largest_batch(cost: DeliveryCost, within: float) -> int:
    """Return the largest batch whose deliveries take so long: n times the mean, and a deviation of n of them.

    A handler that is mostly quick and sometimes very slow has small batches: those behind a slow delivery wait.
    What the message takes once is no part of that: on a machine at its limit it is many times a run, and messages of
    one delivery would keep it there.
    """
    mean, spread = max(cost.one_more, 1e-9), cost.spread
    root = (sqrt(spread * spread + 4 * mean * within) - spread) / (2 * mean)
    return max(1, min(MOST, int(root * root + 1e-6)))


def _largest_beside(cost: DeliveryCost, at_once: int) -> int:
    """Return the largest batch of deliveries side by side: as many as run at once, and more if they are quick."""
    each = max(cost.seconds / cost.deliveries, 1e-9) if cost.deliveries else 1.0
    return min(MOST, max(at_once, int(WITHIN_BESIDE / each)))


def _format_cost(cost: DeliveryCost) -> str:
    found = f"{_format_seconds(cost.one_more)} each"
    return f"{found}, give or take {_format_seconds(cost.spread)}" if cost.spread > 2 * cost.one_more else found


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{_two_digits(seconds)} s"
    return f"{_two_digits(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_two_digits(seconds * 1e6)} µs"


def _two_digits(number: float) -> str:
    """Return a number with two significant digits, never as a power of ten."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"
