"""The lanes of ordered deliveries: a plan sends the next delivery of a lane when the one ahead has ended (pure)."""

from typing import NamedTuple

from bridge.deadletters.model.digest import compute_digest
from bridge.settings import Settings


class OrderedCourse(NamedTuple):
    """The ordered deliveries of a topic to one handler, or to all handlers of its `sequence`, which share lanes.

    Attributes:
        number: its id.
        by_key: whether each key has a lane; else each partition.
    """

    number: int
    by_key: bool

    def lane(self, partition: int, key: int | None) -> int | None:
        """Return the lane of a delivery; `None` if it is unordered, as without a key.

        Parameters:
            key: the key's digest (`key_digest`).
        """
        if not self.by_key:
            return self.number ^ partition
        return None if key is None else self.number ^ partition ^ key


def find_course(settings: Settings, group: str, topic: str, handler: str) -> OrderedCourse | None:
    """Return the course of a handler's deliveries; `None` if the topic has no order.

    Parameters:
        group: the consumer group that handed them off.
    """
    chosen = settings.topic(topic)
    if chosen.order is None:
        return None
    together = chosen.sequence if handler in chosen.sequence else (handler,)
    number = int.from_bytes(compute_digest(group, topic, *together)[:8], "big", signed=True)
    return OrderedCourse(number, chosen.order == "key")


def find_ordered_topics(settings: Settings) -> list[str]:
    """Return the topics that have an order."""
    return sorted(topic for topic, chosen in settings.file.kafka_topics.items() if chosen.order)
