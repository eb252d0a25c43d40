"""The limits above which topics pause and below which they resume, and the log lines about both."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bridge.formats.pause_reasons import PauseReason, name_pause_reason


@dataclass(frozen=True, slots=True)
class PauseLimits:
    """Of anything that is too much: paused above `high`, resumed below `low`."""

    high: float
    low: float

    @classmethod
    def half(cls, high: float) -> "PauseLimits":
        """Where only the upper mark is set, it goes on below half of it."""
        return cls(high, high / 2)


class QueueLength(NamedTuple):
    """Messages of a Celery queue: ready to run, and waiting in the broker for their time."""

    ready: int
    waiting: int = 0

    @property
    def all(self) -> int:
        """Both: each takes memory of the broker."""
        return self.ready + self.waiting


def find_long_queues(
    lengths: Mapping[str, QueueLength], limits: PauseLimits, before: Collection[str]
) -> frozenset[str]:
    """The queues whose topics must be paused.

    Between the marks a queue stays as it was, so that pausing does not flutter: each pause throws away
    what librdkafka has fetched.

    Parameters:
        lengths: per queue.
        before: the queues that were too long when last asked.
    """
    return find_over_limit({queue: length.all for queue, length in lengths.items()}, limits, {*before} & lengths.keys())


def find_over_limit(found: Mapping[str, float | None], limits: PauseLimits, before: Collection[str]) -> frozenset[str]:
    """Of what there is too much, by the same rule.

    Parameters:
        found: how much there is, by what it is of. `None`: it is not known now, and all stays as it was; so it does of
            what is not named at all.
        before: of what there was too much when last asked.
    """
    known = {name: much for name, much in found.items() if much is not None}
    unknown = {name for name in before if name not in known}
    return frozenset(unknown) | {
        name for name, much in known.items() if much > limits.high or (name in before and much >= limits.low)
    }


def estimate_work_seconds(
    carried: Mapping[str, float], costs: Mapping[str, float | None], processes: int, messages: int
) -> float | None:
    """Seconds in which the processes of a queue end what waits there; `None`: that cannot be told.

    Parameters:
        carried: deliveries that wait there, by handler.
        costs: seconds that one takes a process, by handler, as far as it was measured.
        processes: that consume the queue. Of one that nobody consumes it is not known how fast it will be.
        messages: that wait there; nothing is work of no time.
    """
    if not messages:
        return 0.0
    each = [(count, costs.get(handler)) for handler, count in carried.items()]
    if not processes or not each or any(cost is None for _, cost in each):
        return None
    return sum(count * (cost or 0.0) for count, cost in each) / processes


def explain_long_queue(queue: str, length: QueueLength, limits: PauseLimits) -> str:
    """Why the topics of a queue are paused, for the log."""
    retries = f", {length.waiting} of them waiting for their retry" if length.waiting else ""
    marks = f"(paused above {limits.high}, on again below {limits.low})"
    return f"queue {queue!r} holds {length.all} messages{retries} {marks}"


def label_long_queue(queue: str, length: QueueLength) -> str:
    """Why they are paused, for status and metrics, in words that do not change with each message."""
    reason = PauseReason.RETRIES_LONG if length.waiting > length.ready else PauseReason.QUEUE_LONG
    return name_pause_reason(reason, queue)


logger = logging.getLogger(__name__)


class LimitWatch:
    """One kind of pressure, on queues or on topics.

    Parameters:
        high: above so much they pause, and go on below half of it; `None`: they never do.
        reason: for status and metrics, before the name of the queue or topic.
        words: how much there is, for the log, with `{name}` and `{much}`.

    Attributes:
        paused: of what there is too much, with the label.
    """

    def __init__(self, high: float | None, reason: PauseReason, words: str) -> None:
        self._limits = None if high is None else PauseLimits.half(high)
        self._reason, self._words = reason, words
        self.paused: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Whether there is a limit."""
        return self._limits is not None

    def see(self, found: Mapping[str, float | None]) -> None:
        """Take in how much there is now; of what is not known (`None`) all stays as it was."""
        if self._limits is None:
            return
        now = find_over_limit(found, self._limits, self.paused)
        marks = f"(paused above {self._limits.high:,g}, on again below {self._limits.low:,g})"
        for name in sorted(now - self.paused.keys()):
            logger.warning("paused: %s %s", self._said(name, found), marks)
        for name in sorted(self.paused.keys() - now):
            logger.info("resumed: %s", self._said(name, found))
        self.paused = {name: name_pause_reason(self._reason, name) for name in now}

    def _said(self, name: str, found: Mapping[str, float | None]) -> str:
        return self._words.format(name=name, much=found[name] or 0)
