"""The backoff after a failed hand-off: nothing else is tried until the failed step succeeds."""

import logging
from collections.abc import Callable
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import BridgeError, HandoffFailed, KafkaUnavailable, LedgerUnavailable
from lossless.backoff import Backoff, RetryTimer

logger = logging.getLogger(__name__)

#: Seconds between two tries.
RETRY_AFTER: Final = Backoff(first=0.2, most=5.0)


class HandoffBackoff:
    """The failed step that must succeed first: a frozen Redis takes seconds for each question.

    Attributes:
        why: the error of the last try; `None` while hand-off works.
    """

    def __init__(self, metrics: BridgeMetrics, clock: Callable[[], float]) -> None:
        self._metrics, self._clock, self._timer = metrics, clock, RetryTimer(RETRY_AFTER)
        self.why: str | None = None
        self._first: Callable[[], None] | None = None

    def attempt(self, act: Callable[[], None]) -> bool:
        """Do a step that needs Redis or Kafka; return whether it succeeded. A failed one must succeed first."""
        try:
            act()
        except (HandoffFailed, KafkaUnavailable, LedgerUnavailable) as error:
            self.note_failure(act, error)
            return False
        return True

    def note_failure(self, act: Callable[[], None], error: BridgeError) -> None:
        """Note a failed step, which must succeed before anything else is tried."""
        self._first = act
        self._timer.note_failure(self._clock())
        self._metrics.handoff_failures.inc()
        if self.why is None:
            logger.error("deliveries cannot be handed off, consumption pauses until they can: %s", error)
        self.why = str(error)

    def retry(self) -> bool:
        """Try the failed step if it is due; return whether a hand-off may be tried."""
        if not self._timer.is_due(self._clock()):
            return False
        act, self._first = self._first, None
        return act is None or self.attempt(act)

    def end(self) -> None:
        """End the backoff: deliveries were handed off, or could have been."""
        if self.why:
            logger.info("deliveries are handed off again.")
        self.why = None
        self._timer.reset()
