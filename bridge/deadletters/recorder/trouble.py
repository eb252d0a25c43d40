"""What keeps the recorder from going on: said when it begins, once a minute, and when it is over."""

import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

#: Seconds between two tries: first, and at most.
RETRY_AFTER: Final = (0.2, 10.0)
#: Seconds between two times that it is said.
SAY_EVERY: Final = 60.0


class Trouble:
    """One thing that does not answer.

    Parameters:
        waits: what waits for it, for the log: "nothing is recorded".
        well: what is said when it is over.

    Attributes:
        why: a sentence; `None` while there is none.
    """

    def __init__(self, waits: str, well: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._waits, self._well, self._clock = waits, well, clock
        self.why: str | None = None
        self._failures = 0
        self._retry_at = self._since = self._said_at = 0.0

    def met(self, error: Exception) -> None:
        """It was tried, and failed."""
        now, (first, most) = self._clock(), RETRY_AFTER
        self._retry_at = now + min(most, first * 2 ** min(self._failures, 10))
        self._failures += 1
        if self.why is None:
            self._since = now
        if self.why is None or now - self._said_at >= SAY_EVERY:
            self._said_at = now
            logger.error("%s, for %.0f s now; it is tried again: %s", self._waits, now - self._since, error)
        self.why = str(error)

    def over(self) -> None:
        """It answers."""
        if self.why is not None:
            logger.info("%s, after %.0f s.", self._well, self._clock() - self._since)
        self.why, self._failures, self._retry_at = None, 0, 0.0

    @property
    def lasts(self) -> float:
        """For how many seconds there has been any."""
        return 0.0 if self.why is None else self._clock() - self._since

    @property
    def may_try(self) -> bool:
        """Whether it is time to try again."""
        return self._clock() >= self._retry_at
