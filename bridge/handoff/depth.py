"""What is in a Celery queue, in deliveries and in bytes: its length says how many messages, and a batch is one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.handoff.broker import Broker


@dataclass(frozen=True, slots=True)
class Depth:
    """What is ready in a queue, and what all of it weighs.

    Attributes:
        messages: that wait to be taken.
        carried: deliveries in them, by handler; reckoned from some of the messages where there are many.
        size: bytes of Redis that they take, with those that wait for their time or for a gate; `None`: not known.
    """

    messages: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None


def depths(broker: Broker, queues: Collection[str]) -> dict[str, Depth]:
    """Look at some queues.

    Raises:
        HandoffFailed: the broker does not answer.
    """
    lengths, weighed = broker.lengths(queues), broker.weigh(queues)
    return {
        queue: Depth(
            length, reckoned(length, weighed[queue].samples if queue in weighed else ()), _size(weighed.get(queue))
        )
        for queue, length in lengths.items()
    }


def reckoned(messages: int, samples: Sequence[tuple[str, int]]) -> dict[str, float]:
    """Deliveries by handler in so many messages, as these samples of them have it (pure)."""
    carried: dict[str, float] = {}
    for handler, count in samples:
        carried[handler] = carried.get(handler, 0.0) + count * messages / len(samples)
    return carried


def _size(weighed: object) -> int | None:
    return getattr(weighed, "size", None)
