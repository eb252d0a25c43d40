"""What must hold of a limit that handlers share, from what they wrote down: docs/how-to/limit-handlers.md (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.chaos.verdict import LOSSES, Entry, Happened

#: How a run under a limit begins in the book; the old version knows none.
BEGUN: Final = "limited"
#: Starts beside the burst that keys which compete leave for each other.
LEFT_OVER: Final = 8
#: Seconds after a loss of Redis's data within which it knows again what runs.
KNOWN_AGAIN: Final = 6.0


class Span(NamedTuple):
    """A run that ended well, from when to when."""

    begun: float
    ended: float
    delivery: tuple[str, str]
    pid: int


def judge_limit(
    book: Iterable[Entry], faults: Sequence[Happened], limit: Mapping[str, Any], processes: int
) -> Iterator[str]:
    """Return what started, or ran at once, beyond a limit.

    Parameters:
        processes: how many run at once: each may be frozen between its claim and its run.
    """
    entries = sorted(book, key=lambda entry: entry.at)
    losses = [fault for fault in faults if fault.lane == "redis" and fault.kind in LOSSES]
    starts = [entry.at for entry in entries if entry.outcome == BEGUN]
    most = limit["burst"] + LEFT_OVER + processes
    for at, above in _above_rate(starts, losses, limit["per_second"]):
        if above > most:
            yield f"at {at:.3f} {above:.1f} starts are above the rate, and may be {most}"
            break
    spans = [span for span in _spans(entries) if not _is_excused(span, losses, faults)]
    if (at_once := _most_at_once(spans)) > limit["concurrency"]:
        yield f"{at_once} ran at once, and may be {limit['concurrency']}"


def _above_rate(starts: Iterable[float], losses: Sequence[Happened], rate: float) -> Iterator[tuple[float, float]]:
    """Yield for each start how many are above the rate by then; a Redis that lost data begins anew."""
    level = before = 0.0
    for at in starts:
        if any(before < loss.ended + 1 and loss.begun <= at for loss in losses):
            level = 0.0
        level = max(0.0, level - rate * (at - before)) + 1
        before = at
        yield at, level


def _spans(entries: Iterable[Entry]) -> Iterator[Span]:
    begun: dict[tuple[str, str, int], float] = {}
    for entry in entries:
        which = (entry.handler, entry.coordinates, entry.pid)
        if entry.outcome == BEGUN:
            begun[which] = entry.at
        elif entry.outcome == "done" and which in begun:
            yield Span(begun.pop(which), entry.at, which[:2], entry.pid)


def _is_excused(span: Span, losses: Iterable[Happened], faults: Iterable[Happened]) -> bool:
    """Whether more may have run at once: Redis did not know what runs, or its process was frozen meanwhile."""
    unknown = any(loss.begun < span.ended and span.begun < loss.ended + KNOWN_AGAIN for loss in losses)
    frozen = any(
        "frozen" in fault.kind and span.pid in fault.pids and fault.begun < span.ended and span.begun < fault.ended
        for fault in faults
    )
    return unknown or frozen


def _most_at_once(spans: Iterable[Span]) -> int:
    """How many deliveries ran at once; one that was given to another process meanwhile is one."""
    steps = [(time, step, span.delivery) for span in spans for time, step in ((span.begun, 1), (span.ended, -1))]
    running: dict[tuple[str, str], int] = defaultdict(int)
    most = 0
    for _, step, delivery in sorted(steps):
        running[delivery] += step
        if not running[delivery]:
            del running[delivery]
        most = max(most, len(running))
    return most
