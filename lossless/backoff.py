"""The backoff of whatever is tried again: pauses that grow with each failure in a row."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The growing pauses between two tries (pure).

    Attributes:
        first: the first pause, in any unit of time.
        most: the longest pause.
        factor: how many times as long each further pause is.
    """

    first: float
    most: float
    factor: int = 2

    def compute_pause(self, failures: int) -> float:
        """Return the pause after a failure that so many failures in a row came before."""
        # More doublings would only cost memory.
        pause: float = self.first * self.factor ** min(failures, 20)
        return min(self.most, pause)


class RetryTimer:
    """The time of the next try of one thing, by its failures in a row. All times are of one clock."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures = 0
        self._retry_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the next try is due."""
        return now >= self._retry_at

    def note_failure(self, now: float) -> None:
        """Note that a try has failed, and put the next one off."""
        self._retry_at = now + self._backoff.compute_pause(self._failures)
        self._failures += 1

    def reset(self) -> None:
        """Note a success: the next try is due at once, and the next pause is the first one again."""
        self._failures, self._retry_at = 0, 0.0
