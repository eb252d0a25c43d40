"""The length of a wait before a retry: listed delays, a fixed delay, or an exponential backoff with jitter (pure)."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from celery.utils.time import get_exponential_backoff_interval

#: Retries where a handler does not say how many: with the backoff's jitter about 20 minutes, longer than a restart of
#: most services and a short outage. Five, as often elsewhere, are over within 15 s.
MAX_RETRIES: Final = 12
#: The growth of Celery's own backoff from retry to retry.
CELERYS_MULTIPLIER: Final = 2.0


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """The number of a handler's retries, and the wait before each.

    Attributes:
        max_retries: how many failures are retried; `None` is for ever.
        delays: seconds before each retry, exact; where given, its length is the number of retries.
        fixed_delay: seconds before every retry, where no backoff is wanted.
        backoff: seconds before the first retry.
        backoff_multiplier: the growth of the backoff from retry to retry, 1 or more; 1 is the same backoff each time.
        backoff_max: seconds at most.
        jitter: draw the delay evenly between 0 and the backoff ("full jitter").
    """

    max_retries: int | None = MAX_RETRIES
    delays: Sequence[float] | None = None
    fixed_delay: float | None = None
    backoff: float = 1
    backoff_multiplier: float = CELERYS_MULTIPLIER
    backoff_max: int = 600
    jitter: bool = True

    @property
    def retries(self) -> int | None:
        """The number of failures that are retried; `None`: for ever."""
        return self.max_retries if self.delays is None else len(self.delays)

    @property
    def longest_delay(self) -> float:
        """The longest wait of a retry in seconds, except for `RetryLater` and answers of `retry_when`."""
        if self.delays is not None:
            return max(self.delays, default=0)
        if self.fixed_delay is not None:
            return self.fixed_delay
        if self.max_retries == 0:
            return 0
        # A few retries never come as far as `backoff_max`.
        return self._backoff_delay(math.inf if self.max_retries is None else self.max_retries - 1)

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after that many failures before this one (0 at the first)."""
        if self.delays is not None:
            seconds = float(self.delays[min(failures, len(self.delays) - 1)]) if self.delays else 0.0
        elif self.fixed_delay is not None:
            return self.fixed_delay
        elif self.backoff_multiplier == CELERYS_MULTIPLIER:
            # Celery's own formula draws whole seconds. 2 ** 64 is past every `backoff_max`, and more only costs memory.
            return get_exponential_backoff_interval(self._first, min(failures, 64), self.backoff_max, self.jitter)
        else:
            seconds = self._backoff_delay(failures)
        return random.uniform(0, seconds) if self.jitter else seconds

    @property
    def _first(self) -> int:
        """The backoff before the first retry, as Celery reads it: whole seconds, at least one."""
        return int(max(1.0, self.backoff))

    def _backoff_delay(self, failures: float) -> float:
        """Return the backoff without jitter after that many failures before this one."""
        try:
            grown = self._first * float(self.backoff_multiplier) ** failures
        except OverflowError:
            return float(self.backoff_max)
        return float(min(self.backoff_max, grown))
