"""When to pause and when to go on: pure, with the reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Messages in a Celery queue: paused above `high`, resumed below `low`."""

    high: int
    low: int


def too_long(lengths: Mapping[str, int], limits: Limits, before: Collection[str]) -> frozenset[str]:
    """The queues whose topics must be paused.

    Between the marks a queue stays as it was, so that pausing does not flutter: each pause throws away
    what librdkafka has fetched.

    Parameters:
        lengths: messages waiting, per queue.
        before: the queues that were too long when last asked.
    """
    return frozenset(
        queue for queue, length in lengths.items() if length > limits.high or (queue in before and length >= limits.low)
    )


def reason(queue: str, length: int, limits: Limits) -> str:
    """Why the topics of a queue are paused, for status and log."""
    return f"queue {queue!r} holds {length} messages (paused above {limits.high}, on again below {limits.low})"
