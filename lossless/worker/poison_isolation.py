"""Which message killed its workers: those that may have run apart from each other, and so the one is found.

Of what a dead worker held one message killed it, or none. What had not begun is innocent; what had is *accused*:
it runs again beside what has done no harm, and apart in time from others that are. What has seen one worker die begins
half a second after another such: a machine that goes leaves many accused and no culprit, and they are not to wait for
each other's end. What has seen two die runs with no other that is accused in the same worker: so nobody goes down with
the same culprit a third time, however long it takes to kill. A run that comes to an end, well or badly, clears it.
"""

from collections.abc import Callable
from enum import Enum, auto
from time import monotonic
from typing import Any, Final, NamedTuple

#: Seconds between two that are accused in one worker, unless the first has ended, where each has seen one worker die.
APART: Final = 0.5
#: From so many dead workers on it runs with no other that is accused.
ALONE_FROM: Final = 2


class Suspicion(Enum):
    """What the deaths of workers say of a message that they held."""

    NONE = auto()  # it may run
    ACCUSED = auto()  # it may be the one that killed them: it runs apart from others such
    POISON = auto()  # it is


def count_deaths(restored: int, prefetched: int) -> int:
    """How many workers died of it, perhaps.

    Parameters:
        restored: whole workers that died after it had begun there.
        prefetched: those that died before, as far as Redis knew: what ends its worker at once is not always seen to
            begin. Once is chance.
    """
    return restored + max(0, prefetched - 1)


def judge_message(deaths: int, lost: int, limit: float) -> Suspicion:
    """Whether a message is what its workers died of.

    Parameters:
        deaths: as `deaths_with`.
        lost: processes that died with it alone.
        limit: of workers and processes together.
    """
    if not deaths:
        return Suspicion.NONE
    # Lost processes have a limit of their own, and one worker's death says little.
    return Suspicion.POISON if deaths >= 2 and deaths + lost >= limit else Suspicion.ACCUSED


class AccusedMessage(NamedTuple):
    """One of the accused in this worker's hands."""

    message: Any
    deaths: int
    since: float


class PoisonIsolation:
    """Lets the accused into a worker: one after another, and alone what has seen two workers die."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._inside: list[AccusedMessage] = []

    def admits(self, message: Any, deaths: int) -> bool:
        """Whether it may run now; if so, it is inside until its message is acknowledged."""
        now = self._now()
        self._inside = [each for each in self._inside if not _is_over(each.message)]
        if not all(_may_run_beside(each, deaths, now) for each in self._inside):
            return False
        self._inside.append(AccusedMessage(message, deaths, now))
        return True


def _may_run_beside(other: AccusedMessage, deaths: int, now: float) -> bool:
    return max(other.deaths, deaths) < ALONE_FROM and now - other.since >= APART


def _is_over(message: Any) -> bool:
    return bool(message.acknowledged) or bool(getattr(message.channel, "closed", False))
