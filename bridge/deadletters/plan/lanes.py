"""What goes back one after another: the deliveries of a key, or of a partition, on a topic that has an order (pure).

A lane is a number, the same in all plans. It is made of parts that SQL can put together too: all letters of a plan get
theirs in one statement. Two lanes that had one number would but wait for each other.
"""

from typing import NamedTuple

from bridge.deadletters.letters.letter import digest
from bridge.settings import Settings


class Course(NamedTuple):
    """The deliveries of a topic to one handler, or to all those of its `sequence`: they have their lanes together.

    Attributes:
        number: that stands for them.
        by_key: whether each key has a lane; else each partition.
    """

    number: int
    by_key: bool

    def lane(self, partition: int, key: int | None) -> int | None:
        """The lane of one of them; `None`: it is free of all others, as what has no key is.

        Parameters:
            key: its digest (bridge.deadletters.letters.letter.key_digest).
        """
        if not self.by_key:
            return self.number ^ partition
        return None if key is None else self.number ^ partition ^ key


def course_of(settings: Settings, group: str, topic: str, handler: str) -> Course | None:
    """Which deliveries those of a handler stand in line with; `None`: the topic has no order.

    Parameters:
        group: that handed them off.
    """
    chosen = settings.topic(topic)
    if chosen.order is None:
        return None
    together = chosen.sequence if handler in chosen.sequence else (handler,)
    number = int.from_bytes(digest(group, topic, *together)[:8], "big", signed=True)
    return Course(number, chosen.order == "key")


def ordered(settings: Settings) -> list[str]:
    """The topics that have an order."""
    return sorted(topic for topic, chosen in settings.file.kafka_topics.items() if chosen.order)
