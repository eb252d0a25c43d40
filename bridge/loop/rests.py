"""How much of its own time a bridge gives to what was parked while live records come (pure).

A record of a retry topic costs a bridge as much as a live one, and there may be a million of them at once. A live
record that comes meanwhile waits until the bridge has done with those that it took up: so it takes up a few, and rests
in between, in which live records alone go out and other processes of the machine have their turn.
"""

from collections.abc import Callable
from typing import Final

#: Seconds after a live record for which more are expected.
LATELY: Final = 5.0
#: Records of retry and replay topics that are taken up at once: where live records come, and where none do.
FEW: Final = 30
MANY: Final = 150
#: What a record costs elsewhere, in Redis, Kafka and workers, as a multiple of what it costs the bridge: on one machine
#: with all of them 2.5 was measured.
ELSEWHERE: Final = 3.0
#: Seconds that a rest takes at most: what took long may have waited for something else.
REST_AT_MOST: Final = 0.05


class Rests:
    """What was parked has its share of the time, and all of it where nothing else comes.

    Parameters:
        share: `kafka_retry_share`.
    """

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        self._share, self._clock = share, clock
        self._live_at: float | None = None
        self._rests_until = 0.0

    def live(self) -> None:
        """Live records have come."""
        self._live_at = self._clock()

    def spent(self, seconds: float) -> None:
        """So long was spent on what was parked."""
        if self._is_live:
            rest = seconds * ELSEWHERE * (1 - self._share) / self._share
            self._rests_until = self._clock() + min(rest, REST_AT_MOST)

    @property
    def left(self) -> float:
        """Seconds for which nothing of what was parked is taken up yet."""
        return max(0.0, self._rests_until - self._clock())

    @property
    def few(self) -> int:
        """How many records of retry and replay topics are taken up at once now."""
        if self.left:
            return 0
        return FEW if self._is_live else MANY

    @property
    def _is_live(self) -> bool:
        return self._live_at is not None and self._clock() - self._live_at < LATELY
