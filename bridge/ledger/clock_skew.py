"""The clock skew of this host against Redis, whose clock is the reference for the whole group."""

import time
from collections.abc import Callable
from typing import Any, Final

from bridge.ledger.ledger_client import Ledger

#: Seconds between two measurements.
MEASURE_EVERY: Final = 10.0
#: Seconds of skew from which on its beginning is announced.
DIFFERS: Final = 5.0
#: Seconds of skew from which on due times are corrected.
CORRECTED_FROM: Final = 1.0


class ClockSkew:
    """A measurement of the clock skew, repeated every few seconds, for this process's announcements."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._clock = ledger, clock
        self._measured_at = float("-inf")
        self._seconds, self._seconds_since = 0.0, 0.0

    @property
    def ahead(self) -> float:
        """Return the seconds that this clock was ahead at the last measurement; 0 if less than `CORRECTED_FROM`."""
        return self._seconds if abs(self._seconds) >= CORRECTED_FROM else 0.0

    def now(self) -> float:
        """Return the Unix time by Redis's clock, as far as it is known."""
        return self._clock() - self.ahead

    def measure(self) -> dict[str, Any]:
        """Return `clock_skew`, the seconds that this clock is ahead, and since when (by Redis's clock) it is wrong.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        if time.monotonic() - self._measured_at >= MEASURE_EVERY:
            self._measured_at = time.monotonic()
            before = self._clock()
            with self._ledger.asking("read the clock") as pipe:
                pipe.time()
                ((seconds, micros),) = pipe.execute()
            there = seconds + micros / 1e6
            # A slow answer distorts the skew: half of the round trip is taken off.
            self._seconds = (before + self._clock()) / 2 - there
            if abs(self._seconds) < DIFFERS:
                self._seconds_since = 0.0
            elif not self._seconds_since:
                self._seconds_since = there
        return {"clock_skew": round(self._seconds, 3), "clock_skew_since": self._seconds_since or None}
