"""The limits of queues and topics: above which topics pause, below which they resume, and the log lines about both."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bridge.formats.pause_reasons import PauseReason, name_pause_reason
from bridge.formats.text_forms import format_count


@dataclass(frozen=True, slots=True)
class PauseLimits:
    """The limits of a pause: paused above `high`, resumed below `low`."""

    high: float
    low: float

    @classmethod
    def half(cls, high: float) -> "PauseLimits":
        """Return limits that resume below half of `high`."""
        return cls(high, high / 2)


class QueueLength(NamedTuple):
    """The messages of a Celery queue: ready to run, and waiting in the broker until they are due."""

    ready: int
    waiting: int = 0

    @property
    def all(self) -> int:
        """Return the number of all messages: each takes memory of the broker."""
        return self.ready + self.waiting


def find_long_queues(
    lengths: Mapping[str, QueueLength], limits: PauseLimits, before: Collection[str]
) -> frozenset[str]:
    """Return the queues whose topics must be paused.

    Between the limits a queue stays as it was, because each pause throws away what librdkafka has fetched.

    Parameters:
        lengths: by queue.
        before: the queues that were too long at the last poll.
    """
    return find_over_limit({queue: length.all for queue, length in lengths.items()}, limits, {*before} & lengths.keys())


def find_over_limit(
    amounts: Mapping[str, float | None], limits: PauseLimits, before: Collection[str]
) -> frozenset[str]:
    """Return the names whose amount exceeds the limits.

    Parameters:
        amounts: by name; one that is `None` or missing is unknown, and its name stays as it was.
        before: the names that exceeded the limits at the last poll.
    """
    known = {name: amount for name, amount in amounts.items() if amount is not None}
    unknown = {name for name in before if name not in known}
    return frozenset(unknown) | {
        name for name, amount in known.items() if amount > limits.high or (name in before and amount >= limits.low)
    }


def estimate_work_seconds(
    carried: Mapping[str, float], costs: Mapping[str, float | None], processes: int, messages: int
) -> float | None:
    """Return the seconds that the processes of a queue need for what waits there; `None` if unknown.

    Parameters:
        carried: waiting deliveries, by handler.
        costs: measured seconds that a delivery takes a process, by handler.
        processes: processes that consume the queue; with none, its speed is unknown.
        messages: waiting messages.
    """
    if not messages:
        return 0.0
    work = [(count, costs.get(handler)) for handler, count in carried.items()]
    if not processes or not work or any(cost is None for _, cost in work):
        return None
    return sum(count * (cost or 0.0) for count, cost in work) / processes


def explain_long_queue(queue: str, length: QueueLength, limits: PauseLimits) -> str:
    """Return why the topics of a queue are paused, for the log."""
    retries = f", {length.waiting} of them waiting for their retry" if length.waiting else ""
    marks = f"(paused above {limits.high}, resumed below {limits.low})"
    return f"queue {queue!r} holds {format_count(length.all, 'message')}{retries} {marks}"


def label_long_queue(queue: str, length: QueueLength) -> str:
    """Return why the topics of a queue are paused, for status and metrics: the words do not change with the length."""
    reason = PauseReason.RETRIES_LONG if length.waiting > length.ready else PauseReason.QUEUE_LONG
    return name_pause_reason(reason, queue)


logger = logging.getLogger(__name__)


class LimitWatch:
    """The watch over one amount of each queue or topic, with its limit.

    Parameters:
        high: limit above which they pause; they resume below half of it. `None`: no limit.
        reason: for status and metrics, before the name of the queue or topic.
        words: the amount, for the log, with `{name}` and `{much}`.

    Attributes:
        paused: the reason of each name that exceeds its limit.
    """

    def __init__(self, high: float | None, reason: PauseReason, words: str) -> None:
        self._limits = None if high is None else PauseLimits.half(high)
        self._reason, self._words = reason, words
        self.paused: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Return whether there is a limit."""
        return self._limits is not None

    def update_counts(self, amounts: Mapping[str, float | None]) -> None:
        """Take in the amounts; a name whose amount is unknown (`None`) stays as it was."""
        if self._limits is None:
            return
        exceeding = find_over_limit(amounts, self._limits, self.paused)
        marks = f"(paused above {self._limits.high:,g}, resumed below {self._limits.low:,g})"
        for name in sorted(exceeding - self.paused.keys()):
            logger.warning("paused: %s %s", self._format(name, amounts), marks)
        for name in sorted(self.paused.keys() - exceeding):
            logger.info("resumed: %s", self._format(name, amounts))
        self.paused = {name: name_pause_reason(self._reason, name) for name in exceeding}

    def _format(self, name: str, amounts: Mapping[str, float | None]) -> str:
        return self._words.format(name=name, much=amounts[name] or 0)
