"""The identity of a delivery: coordinates of its source record and the handler, and what is made of them:

Celery task ids, labels in Flower and logs (pure).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: A partition: its topic and its number.
Place: TypeAlias = tuple[str, int]


#: Most characters of a list of records in a task's arguments or result, beside the rest of it.
LIST_LENGTH: Final = 400


def make_log_identity(cluster: str, group: str, topic_id: str) -> str:
    """What tells a delivery from one of the same id: of another Kafka or group, or of a topic that was made again."""
    return f"{cluster} {group} {topic_id}"


def batch_id(topic: str, partition: int, offsets: Sequence[int], handler: str) -> str:
    """The Celery task id for these offsets of a partition, ascending."""
    if len(offsets) == 1:
        return f"{topic}-{partition}-{offsets[0]}:{handler}"
    return f"{topic}-{partition}-{offsets[0]}..{offsets[-1]}:{handler}"


def work_of(identity: str, again: str) -> str:
    """What a delivery is known by where its work is to be done once: once more for each time that it was asked for."""
    return f"{identity} again {again}" if again else identity


def label_records(topic: str, partition: int, offsets: Sequence[int]) -> str:
    """What Flower and the logs show as a task's arguments, so that Flower's search for a record's coordinates finds it.

    Of a few every one is named. Of more their hundreds are: the record orders-3-1234 is one of `orders-3-12xx`.
    """
    place = f"{topic}-{partition}-"
    if len(offsets) == 1:
        return f"({place}{offsets[0]})"
    first, last = offsets[0], offsets[-1]
    names = _all_named(place, offsets) or _hundreds(place, offsets)
    return f"({place}{first}..{last}, {len(offsets)} messages: {names})"


def list_records(topic: str, partition: int, offsets: Sequence[int]) -> str:
    """These records by their coordinates, as many as there is room for."""
    return _join_names((f"{topic}-{partition}-{offset}" for offset in offsets), len(offsets))


def _all_named(place: str, offsets: Sequence[int]) -> str | None:
    if len(offsets) * (len(place) + len(str(offsets[-1])) + 1) > LIST_LENGTH:
        return None
    return " ".join(f"{place}{offset}" for offset in offsets)


def _hundreds(place: str, offsets: Sequence[int]) -> str:
    first, last = offsets[0] // 100, offsets[-1] // 100
    whole = offsets[-1] - offsets[0] == len(offsets) - 1
    found: Iterable[int] = range(first, last + 1) if whole else dict.fromkeys(offset // 100 for offset in offsets)
    return _join_names((f"{place}{hundred or ''}xx" for hundred in found), 0)


def _join_names(names: Iterable[str], count: int) -> str:
    """As many of the names as there is room for; of how many, if that is known."""
    shown: list[str] = []
    room = LIST_LENGTH
    for name in names:
        room -= len(name) + 1
        if room < 0:
            return " ".join([*shown, f"and {count - len(shown)} more" if count else "…"])
        shown.append(name)
    return " ".join(shown)


#: Kafka's own bounds: partitions and offsets.
PARTITIONS: Final = 2**31
OFFSETS: Final = 2**63


class Origin(NamedTuple):
    """Whose a record is: where its message first lay, the handler, the consumer group.

    `topic_id` is that of the log; empty in a dead letter of an older version.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    handler: str
    group: str

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`: the delivery's."""
        return batch_id(self.topic, self.partition, (self.offset,), self.handler)
