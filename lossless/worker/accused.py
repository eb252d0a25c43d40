"""Which message killed its workers: those that may have run apart from each other, and so the one is found.

Of what a dead worker held one message killed it, or none. What had not begun is innocent; what had is *accused*:
it runs again beside what has done no harm, and apart in time from others that are. So the next worker that dies has one
of them in its hands, and a neighbour goes down with the same culprit once. A run that comes to an end, well or badly,
clears it.
"""

from collections.abc import Callable
from enum import Enum, auto
from time import monotonic
from typing import Any, Final

from lossless.worker.ending import pause_after

#: Seconds for which a worker takes no second one that is accused, unless the first has ended: after one worker's
#: death, after two, after more.
#: A machine that goes leaves many accused and no culprit: they are not to wait for each other's end.
APART: Final = (0.5, 10, 60)


class Suspicion(Enum):
    """What the deaths of workers say of a message that they held."""

    NONE = auto()  # it may run
    ACCUSED = auto()  # it may be the one that killed them: it runs apart from others such
    POISON = auto()  # it is


def deaths_with(restored: int, prefetched: int) -> int:
    """How many workers died of it, perhaps.

    Parameters:
        restored: whole workers that died after it had begun there.
        prefetched: those that died before, as far as Redis knew: what ends its worker at once is not always seen to
            begin. Once is chance.
    """
    return restored + max(0, prefetched - 1)


def suspicion_of(deaths: int, lost: int, limit: float) -> Suspicion:
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


class Apart:
    """Lets one of the accused at a time into a worker."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._inside: Any = None
        self._until = 0.0

    def admits(self, message: Any, deaths: int) -> bool:
        """Whether it may run now; if so, it is inside until its message is acknowledged, or its time is over."""
        now = self._now()
        if self._inside is not None and now < self._until and not _is_over(self._inside):
            return False
        self._inside, self._until = message, now + pause_after(deaths, APART)
        return True


def _is_over(message: Any) -> bool:
    return bool(message.acknowledged) or bool(getattr(message.channel, "closed", False))
