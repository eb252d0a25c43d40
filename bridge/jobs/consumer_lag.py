"""The partitions whose consumer lag grows: producers write faster than this bridge reads, for minutes (pure)."""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.formats.delivery_identity import Place

#: Seconds of a step, of which the lowest count is kept; and consecutive steps in which it must have grown.
STEP: Final = 60.0
GROWN: Final = 5
#: Steps that are remembered, to tell since when the lag grows.
REMEMBERED: Final = 60


class Lag(NamedTuple):
    """The records that were not read yet, and since when (Unix time) their number has grown."""

    records: int
    since: float


class _LagSteps:
    """The lowest count of each step: it falls while a partition catches up, and is 0 when it idles."""

    def __init__(self, at: float, count: int) -> None:
        self.begun, self.lowest = at, count
        self.past: deque[int] = deque(maxlen=REMEMBERED)

    def take_in(self, at: float, count: int) -> None:
        if at - self.begun >= STEP:
            self.past.append(self.lowest)
            self.begun, self.lowest = at, count
        self.lowest = min(self.lowest, count)

    def grown(self) -> int:
        """Return for how many consecutive steps the count was never 0 and never fell."""
        counts, steps = [*self.past, self.lowest], 0
        while steps < len(self.past) and 0 < counts[-2 - steps] <= counts[-1 - steps]:
            steps += 1
        return steps


class LagWatch:
    """The watch for growing lag, over the counts of the loop.

    Records that were read and are not settled do not count: they wait for workers. A catch-up, however long, does not
    count either, nor does a burst that is over within minutes.
    """

    def __init__(self) -> None:
        self._steps: dict[Place, _LagSteps] = {}

    def add_counts(self, unread: Mapping[Place, int], now: float) -> dict[Place, Lag]:
        """Take in how many records of each partition were not read yet; return the partitions whose lag grows.

        Parameters:
            now: Unix time.
        """
        known, self._steps = self._steps, {}
        growing = {}
        for place, count in unread.items():
            steps = self._steps[place] = known.get(place) or _LagSteps(now, count)
            steps.take_in(now, count)
            grown = steps.grown()
            if grown >= GROWN and steps.lowest > steps.past[-GROWN]:
                growing[place] = Lag(count, steps.begun - grown * STEP)
        return growing
