"""When to pause and when to go on: pure, with the reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Limits:
    """Of anything that is too much: paused above `high`, resumed below `low`."""

    high: float
    low: float

    @classmethod
    def half(cls, high: float) -> "Limits":
        """Where only the upper mark is set, it goes on below half of it."""
        return cls(high, high / 2)


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
    return too_much({queue: length.all for queue, length in lengths.items()}, limits, {*before} & lengths.keys())


def too_much(found: Mapping[str, float | None], limits: Limits, before: Collection[str]) -> frozenset[str]:
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


def work_seconds(
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


def reason(queue: str, length: Length, limits: Limits) -> str:
    """Why the topics of a queue are paused, for the log."""
    retries = f", {length.waiting} of them waiting for their retry" if length.waiting else ""
    marks = f"(paused above {limits.high}, on again below {limits.low})"
    return f"queue {queue!r} holds {length.all} messages{retries} {marks}"


def label(queue: str, length: Length) -> str:
    """Why they are paused, for status and metrics, in words that do not change with each message."""
    return f"retries of queue {queue}" if length.waiting > length.ready else f"queue {queue}"
