"""How many letters may go now, of so many a second (pure)."""

from typing import Final

#: Seconds of a rate that may go at once: a batch, or a look at how others ended, takes as long on a busy machine,
#: and the rate is kept all the same.
BURST: Final = 1.0


class Pace:
    """Lets so many through a second.

    Parameters:
        rate: letters a second; `None`: all.
        now: seconds, by any clock that only goes forward.
    """

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        # The first goes at once.
        self._may, self._at = 1.0, now

    def allowed(self, most: int, now: float) -> int:
        """How many may go now, of so many at most."""
        if self._rate is None:
            return most
        room = max(1.0, self._rate * BURST)
        self._may = min(room, self._may + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._may))

    def went(self, count: int) -> None:
        """So many have gone."""
        if self._rate is not None:
            self._may -= count

    @property
    def until_next(self) -> float:
        """Seconds until the next may go; 0: at once."""
        return 0.0 if self._rate is None or self._may >= 1 else (1 - self._may) / self._rate
