"""Something of which there may be too much, told once when it begins and once when it is over."""

import logging
from collections.abc import Mapping

from bridge.pauses.pressure import Limits, too_much

logger = logging.getLogger(__name__)


class Watch:
    """One kind of pressure, on queues or on topics.

    Parameters:
        high: above so much they pause, and go on below half of it; `None`: they never do.
        label: why, for status and metrics, with `{}` for the queue or the topic: it does not change with each look.
        words: how much there is, for the log, with `{name}` and `{much}`.

    Attributes:
        paused: of what there is too much, with the label.
    """

    def __init__(self, high: float | None, label: str, words: str) -> None:
        self._limits = None if high is None else Limits.half(high)
        self._label, self._words = label, words
        self.paused: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether there is a limit."""
        return self._limits is not None

    def see(self, found: Mapping[str, float | None]) -> None:
        """Take in how much there is now; of what is not known (`None`) all stays as it was."""
        if self._limits is None:
            return
        now = too_much(found, self._limits, self.paused)
        marks = f"(paused above {self._limits.high:,g}, on again below {self._limits.low:,g})"
        for name in sorted(now - self.paused.keys()):
            logger.warning("paused: %s %s", self._said(name, found), marks)
        for name in sorted(self.paused.keys() - now):
            logger.info("resumed: %s", self._said(name, found))
        self.paused = {name: self._label.format(name) for name in now}

    def _said(self, name: str, found: Mapping[str, float | None]) -> str:
        return self._words.format(name=name, much=found[name] or 0)
