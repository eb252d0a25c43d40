"""Partitions whose consumer lag grows: producers write faster than this bridge reads, for minutes (pure)."""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.formats.delivery_identity import Place

#: Seconds of which the lowest count is kept, and for how many of them on end it must have grown.
STEP: Final = 60.0
GROWN: Final = 5
#: Steps that are remembered, for since when it grows.
REMEMBERED: Final = 60


class Lag(NamedTuple):
    """Records that were not read yet, and since when (Unix time) they have become more."""

    records: int
    since: float


class _LagSteps:
    """The lowest count of each step; a partition that catches up goes down, one that idles comes to nothing."""

    def __init__(self, at: float, count: int) -> None:
        self.begun, self.lowest = at, count
        self.past: deque[int] = deque(maxlen=REMEMBERED)

    def take_in(self, at: float, count: int) -> None:
        if at - self.begun >= STEP:
            self.past.append(self.lowest)
            self.begun, self.lowest = at, count
        self.lowest = min(self.lowest, count)

    def grown(self) -> int:
        """For how many steps on end it was never nothing, and never less than before."""
        counts, steps = [*self.past, self.lowest], 0
        while steps < len(self.past) and 0 < counts[-2 - steps] <= counts[-1 - steps]:
            steps += 1
        return steps


class LagWatch:
    """Counts as the loop sees them.

    What is read and not settled yet is not behind: that waits for workers, and is told of otherwise. A catch-up,
    however long, is none either, nor is a burst that is over within minutes.
    """

    def __init__(self) -> None:
        self._steps: dict[Place, _LagSteps] = {}

    def look(self, unread: Mapping[Place, int], now: float) -> dict[Place, Lag]:
        """Take in how many records of each partition are not read yet; return those that fall behind.

        Parameters:
            now: Unix time.
        """
        known, self._steps = self._steps, {}
        found = {}
        for place, count in unread.items():
            steps = self._steps[place] = known.get(place) or _LagSteps(now, count)
            steps.take_in(now, count)
            grown = steps.grown()
            if grown >= GROWN and steps.lowest > steps.past[-GROWN]:
                found[place] = Lag(count, steps.begun - grown * STEP)
        return found
