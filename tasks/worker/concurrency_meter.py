"""The automatic concurrency of this process's `async def` handlers (`concurrency="auto"`).

It begins with one, and doubles while twice as many really do more: while the event loop has room for them, and each
run takes hardly longer. So it stops where they wait for each other: for code that blocks, or for a pool.
"""

import os
from typing import Final, NamedTuple

#: The most deliveries that a process runs at once with an automatic concurrency.
MOST: Final = 100
#: The part of the loop's time that handlers may fill: filled wholly, they would wait for each other.
FILLS: Final = 0.8
#: The runs of a handler before it is measured: the first also pay for imports and connections.
COLD_RUNS: Final = 3
#: The least runs of a round, after which the number is decided on, and the least for each that runs at once.
ROUND: Final = 20
ROUND_OF_EACH: Final = 4
#: The rounds for which a number stands that was too much to raise; then it is halved, and found again.
STANDS_FOR: Final = 20


class HandlerTime(NamedTuple):
    """The time of some runs of a handler.

    Attributes:
        runs: how many there were.
        seconds: from beginning to end, of all runs together.
        busy: seconds for which the loop did not wait meanwhile.
    """

    runs: int = 0
    seconds: float = 0.0
    busy: float = 0.0


class SmallerNumber(NamedTuple):
    """The number from which a concurrency was raised, and the mean seconds of its runs."""

    number: int
    mean: float


class FoundConcurrency(NamedTuple):
    """The concurrency of a handler, as far as it is found.

    Attributes:
        number: how many run at once.
        cold: how many runs are not measured yet.
        ran: the time of the runs with this number.
        smaller: the number before, if this one is being tried.
        stands: the rounds for which it is not raised.
    """

    number: int = 1
    cold: int = COLD_RUNS
    ran: HandlerTime = HandlerTime()
    smaller: SmallerNumber | None = None
    stands: int = 0


def add_batch(found: FoundConcurrency, latest: HandlerTime, at_once: int, *, overran: bool) -> FoundConcurrency:
    """Return the concurrency after one more batch (pure).

    Parameters:
        at_once: how many of it ran at once.
        overran: whether a run has overrun its soft time limit.
    """
    if overran and at_once > 1:
        return FoundConcurrency(max(1, found.number // 2), 0, stands=STANDS_FOR)
    if found.cold > 0:
        return found._replace(cold=found.cold - latest.runs)
    if at_once != found.number:
        return found
    before = found.ran
    ran = HandlerTime(before.runs + latest.runs, before.seconds + latest.seconds, before.busy + latest.busy)
    found = found._replace(ran=ran)
    return found if ran.runs < max(ROUND, ROUND_OF_EACH * found.number) else _end_round(found)


def _end_round(found: FoundConcurrency) -> FoundConcurrency:
    number, mean = found.number, found.ran.seconds / found.ran.runs
    room = max(1, min(MOST, int(FILLS * found.ran.seconds / max(found.ran.busy, 1e-9))))
    if room < number:
        return FoundConcurrency(room, 0, stands=STANDS_FOR)
    if found.smaller is not None and not _pays(found.smaller, number, mean):
        return FoundConcurrency(found.smaller.number, 0, stands=STANDS_FOR)
    if found.stands > 1:
        return FoundConcurrency(number, 0, stands=found.stands - 1)
    if found.stands == 1 and number > 1:
        return FoundConcurrency(number // 2, 0)
    if (more := min(2 * number, room)) > number:
        return FoundConcurrency(more, 0, smaller=SmallerNumber(number, mean))
    return FoundConcurrency(number, 0, stands=0 if number == 1 else STANDS_FOR)


def _pays(smaller: SmallerNumber, number: int, mean: float) -> bool:
    """Return whether a number does at least half of what it would do more if its runs took no longer."""
    more = number / smaller.number
    return more * smaller.mean / max(mean, 1e-9) >= (1 + more) / 2


def note_batch(handler: str, latest: HandlerTime, at_once: int, *, overran: bool) -> None:
    """Note a handler's batch in this process; see `add_batch`."""
    known = _own_numbers()
    known[handler] = add_batch(known.get(handler, FoundConcurrency()), latest, at_once, overran=overran)


def find_concurrency(handler: str) -> int:
    """Return how many deliveries of a handler this process runs at once."""
    return _own_numbers().get(handler, FoundConcurrency()).number


_of_process: tuple[int, dict[str, FoundConcurrency]] | None = None


def _own_numbers() -> dict[str, FoundConcurrency]:
    # Numbers inherited by a fork are the parent's.
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), {})
    return _of_process[1]
