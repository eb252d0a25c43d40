"""The identity of a delivery (source record and handler), and the Celery task ids and labels made of it (pure)."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: A partition: its topic and its number.
Place: TypeAlias = tuple[str, int]


#: Maximum number of characters of a list of records in a task's arguments or result.
LIST_LENGTH: Final = 400


def make_log_identity(cluster: str, group: str, topic_id: str) -> str:
    """Return the part of a delivery's origin that tells it from one of the same id: cluster, group and id of the
    topic's log.
    """
    return f"{cluster} {group} {topic_id}"


def batch_id(topic: str, partition: int, offsets: Sequence[int], handler: str) -> str:
    """Return the Celery task id for ascending offsets of a partition."""
    if len(offsets) == 1:
        return f"{topic}-{partition}-{offsets[0]}:{handler}"
    return f"{topic}-{partition}-{offsets[0]}..{offsets[-1]}:{handler}"


def work_of(identity: str, again: str) -> str:
    """Return the key of work that must be done once: the identity, and the request for another run if there is one."""
    return f"{identity} again {again}" if again else identity


def label_records(topic: str, partition: int, offsets: Sequence[int]) -> str:
    """Return a task's arguments as Flower and the logs show them: Flower's search for a record's coordinates finds it.

    A few records are named one by one, many by their hundreds: the record orders-3-1234 is one of `orders-3-12xx`.
    """
    place = f"{topic}-{partition}-"
    if len(offsets) == 1:
        return f"({place}{offsets[0]})"
    first, last = offsets[0], offsets[-1]
    names = _all_named(place, offsets) or _hundreds(place, offsets)
    return f"({place}{first}..{last}, {len(offsets)} messages: {names})"


def list_records(topic: str, partition: int, offsets: Sequence[int]) -> str:
    """Return the coordinates of these records, as many as there is room for."""
    return _join_names((f"{topic}-{partition}-{offset}" for offset in offsets), len(offsets))


def _all_named(place: str, offsets: Sequence[int]) -> str | None:
    if len(offsets) * (len(place) + len(str(offsets[-1])) + 1) > LIST_LENGTH:
        return None
    return " ".join(f"{place}{offset}" for offset in offsets)


def _hundreds(place: str, offsets: Sequence[int]) -> str:
    first, last = offsets[0] // 100, offsets[-1] // 100
    unbroken = offsets[-1] - offsets[0] == len(offsets) - 1
    hundreds: Iterable[int] = range(first, last + 1) if unbroken else dict.fromkeys(offset // 100 for offset in offsets)
    return _join_names((f"{place}{hundred or ''}xx" for hundred in hundreds), 0)


def _join_names(names: Iterable[str], count: int) -> str:
    """Return as many of the names as there is room for, and how many are left out if `count` is known."""
    shown: list[str] = []
    room = LIST_LENGTH
    for name in names:
        room -= len(name) + 1
        if room < 0:
            return " ".join([*shown, f"and {count - len(shown)} more" if count else "…"])
        shown.append(name)
    return " ".join(shown)


#: Kafka's upper bounds of partition numbers and offsets.
PARTITIONS: Final = 2**31
OFFSETS: Final = 2**63


class Origin(NamedTuple):
    """The source record, handler and consumer group of a delivery.

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
        """Return the delivery's identity, `orders-3-1234:orders.handlers.charge`."""
        return batch_id(self.topic, self.partition, (self.offset,), self.handler)
