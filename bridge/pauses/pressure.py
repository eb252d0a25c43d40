"""When to pause and when to go on: pure, with the reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Limits:
    """Messages in a Celery queue: paused above `high`, resumed below `low`."""

    high: int
    low: int


class Length(NamedTuple):
    """Messages of a Celery queue: ready to run, and waiting in the broker for their time."""

    ready: int
    waiting: int = 0

    @property
    def all(self) -> int:
        """Both: each takes memory of the broker."""
        return self.ready + self.waiting


def too_long(lengths: Mapping[str, Length], limits: Limits, before: Collection[str]) -> frozenset[str]:
    """The queues whose topics must be paused.

    Between the marks a queue stays as it was, so that pausing does not flutter: each pause throws away
    what librdkafka has fetched.

    Parameters:
        lengths: per queue.
        before: the queues that were too long when last asked.
    """
    return frozenset(
        queue
        for queue, length in lengths.items()
        if length.all > limits.high or (queue in before and length.all >= limits.low)
    )


def reason(queue: str, length: Length, limits: Limits) -> str:
    """Why the topics of a queue are paused, for the log."""
    retries = f", {length.waiting} of them waiting for their retry" if length.waiting else ""
    marks = f"(paused above {limits.high}, on again below {limits.low})"
    return f"queue {queue!r} holds {length.all} messages{retries} {marks}"


def label(queue: str, length: Length) -> str:
    """Why they are paused, for status and metrics, in words that do not change with each message."""
    return f"retries of queue {queue}" if length.waiting > length.ready else f"queue {queue}"
