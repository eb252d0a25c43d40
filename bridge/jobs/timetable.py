"""The timetable of periodic jobs."""

from collections.abc import Callable


class Timetable:
    """The times from which on named jobs are due; at the start all are."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def due(self, name: str, every: float) -> bool:
        """Return whether a job is due; if it is, it is due again in `every` seconds."""
        now = self._clock()
        if now < self._next.get(name, 0.0):
            return False
        self._next[name] = now + every
        return True

    def soon(self, *names: str) -> None:
        """Make jobs due at once."""
        for name in names:
            self._next[name] = 0.0
