"""The pause after a failed hand-off: until what failed succeeds nothing else is tried."""

import logging
from collections.abc import Callable
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import BridgeError, HandoffFailed, KafkaUnavailable, LedgerUnavailable

logger = logging.getLogger(__name__)

#: Seconds between two tries: first, and at most.
RETRY_AFTER: Final = (0.2, 5.0)


class HandoffBackoff:
    """Until what failed succeeds nothing else is asked: a Redis that is frozen takes seconds for each question.

    Attributes:
        why: in the words of what does not answer; `None` while all goes.
    """

    def __init__(self, metrics: BridgeMetrics, clock: Callable[[], float]) -> None:
        self._metrics, self._clock = metrics, clock
        self.why: str | None = None
        self._first: Callable[[], None] | None = None
        self._failures = 0
        self._retry_at = 0.0

    def attempt(self, act: Callable[[], None]) -> bool:
        """Do what needs the ledger or the broker; return whether it was done. If not, it is what is tried first."""
        try:
            act()
        except (HandoffFailed, KafkaUnavailable, LedgerUnavailable) as error:
            self.failed(act, error)
            return False
        return True

    def failed(self, act: Callable[[], None], error: BridgeError) -> None:
        """This must succeed before anything else is tried."""
        first, most = RETRY_AFTER
        self._first = act
        self._retry_at = self._clock() + min(most, first * 2 ** min(self._failures, 10))
        self._failures += 1
        self._metrics.handoff_failures.inc()
        if self.why is None:
            logger.error("deliveries cannot be handed off, consumption pauses until they can: %s", error)
        self.why = str(error)

    def retry(self) -> bool:
        """Try what failed, if it is time to; return whether a hand-off may be tried."""
        if self._clock() < self._retry_at:
            return False
        act, self._first = self._first, None
        return act is None or self.attempt(act)

    def over(self) -> None:
        """Deliveries were handed off, or could have been."""
        if self.why:
            logger.info("deliveries are handed off again.")
        self.why, self._failures, self._retry_at = None, 0, 0.0
