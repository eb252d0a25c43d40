"""A limit for log lines about refused records: thousands of them are one line a period, with a count."""

import time
from collections.abc import Callable
from typing import Final

#: Seconds between two lines.
TOLD_EVERY: Final = 60.0


class RefusalLog:
    """Counts refused records of one partition, and says when a line about them is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold = 0
        self._told_at = float("-inf")

    def count(self, number: int) -> int:
        """Count refused records; return how many a line that is due now tells of, 0 while none is due."""
        self._untold += number
        if not number or self._clock() - self._told_at < TOLD_EVERY:
            return 0
        told, self._untold, self._told_at = self._untold, 0, self._clock()
        return told
