"""The automatic concurrency of this process's `async def` handlers, by the waiting share of their time."""

import os
from typing import Final, NamedTuple

#: The most deliveries that a process runs at once with an automatic concurrency.
MOST: Final = 100
#: The part of the processor's time that handlers may fill: filled wholly, they would wait for each other.
FILLS: Final = 0.8
#: The runs of a handler before its share counts: the first also pay for imports and connections.
COLD_RUNS: Final = 3
#: How much earlier measurements count beside the latest batch's.
FADES: Final = 0.9


class HandlerTime(NamedTuple):
    """The recent time of a handler in this process.

    Attributes:
        runs: how many there were in all.
        seconds: from beginning to end, of all runs together.
        processor: seconds of the processor meanwhile.
    """

    runs: int = 0
    seconds: float = 0.0
    processor: float = 0.0


def compute_concurrency(known: HandlerTime) -> int:
    """Return how many runs of a handler fill the processor, those counted that wait (pure)."""
    if known.runs <= COLD_RUNS or known.seconds <= 0:
        return 1
    return max(1, min(MOST, int(FILLS * known.seconds / max(known.processor, 1e-9))))


def add_time(known: HandlerTime, latest: HandlerTime) -> HandlerTime:
    """Return the recent time of a handler with that of its latest batch (pure)."""
    if known.runs < COLD_RUNS:
        return HandlerTime(known.runs + latest.runs)
    return HandlerTime(
        known.runs + latest.runs,
        FADES * known.seconds + latest.seconds,
        FADES * known.processor + latest.processor,
    )


def note_time(handler: str, latest: HandlerTime) -> None:
    """Note the time of a handler's batch in this process."""
    times = _own_times()
    times[handler] = add_time(times.get(handler, HandlerTime()), latest)


def find_concurrency(handler: str) -> int:
    """Return how many deliveries of a handler this process runs at once."""
    return compute_concurrency(_own_times().get(handler, HandlerTime()))


_of_process: tuple[int, dict[str, HandlerTime]] | None = None


def _own_times() -> dict[str, HandlerTime]:
    # Times inherited by a fork are the parent's.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), {})
    return _of_process[1]
