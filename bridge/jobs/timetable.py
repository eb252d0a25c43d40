"""The timetable of periodic jobs: when each is due."""

from collections.abc import Callable


class Timetable:
    """Names, and the time from which on each is due; at the beginning all are."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def due(self, what: str, every: float) -> bool:
        """Whether it is due; if so, it is again in `every` seconds."""
        now = self._clock()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every
        return True

    def soon(self, *names: str) -> None:
        """These are due at once."""
        for each in names:
            self._next[each] = 0.0
