"""A limit for log lines about refused records: thousands of them are a few lines a period, with counts."""

import time
from collections.abc import Callable
from typing import Final

#: Seconds between two lines, and how many times more than the last line told bring the next one before that.
TOLD_EVERY: Final = 60.0
TIMES_MORE: Final = 10


class RefusalLog:
    """Counts refused records of one partition, and says when a line about them is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold = self._told = 0
        self._told_at = float("-inf")

    def count(self, number: int) -> int:
        """Count refused records; return how many a line that is due now tells of, 0 while none is due."""
        self._untold += number
        is_due = self._clock() - self._told_at >= TOLD_EVERY or self._untold >= TIMES_MORE * self._told
        if not number or not is_due:
            return 0
        self._told, self._untold, self._told_at = self._untold, 0, self._clock()
        return self._told
