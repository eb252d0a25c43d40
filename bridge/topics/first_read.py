"""What a consumer group that has committed nothing on a topic is about to read, and where other groups are on it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.settings import Settings
from bridge.topics.extents import Extent, extents
from bridge.topics.readers import commits

#: Most other groups that are named.
NAMED: Final = 3


class FirstRead(NamedTuple):
    """What is read of a topic on which the group has committed nothing.

    Attributes:
        records: how many are read from the beginning; or, from the end on, are not.
        others: how many records each other group has left to read there.
    """

    topic: str
    group: str
    records: int
    from_end: bool
    others: Mapping[str, int]

    @property
    def is_surprising(self) -> bool:
        """Whether records are read that another group has read: as after a group was renamed."""
        return bool(self.records and self.others) and not self.from_end

    @property
    def words(self) -> str:
        """A sentence for the log and for `bridge check`."""
        what = (
            f"begins at the end, {self.records:,} records before that are not read (KAFKA_AUTO_OFFSET_RESET)"
            if self.from_end
            else f"{self.records:,} records from the beginning"
        )
        said = [
            f"group {name!r} " + (f"has {left:,} left to read" if left else "is at the end")
            for name, left in sorted(self.others.items())[:NAMED]
        ]
        if (more := len(self.others) - NAMED) > 0:
            said.append(f"{more} other groups read it too")
        advice = (
            f" If this group takes the place of another one, set its offsets first: `bridge reset {self.topic} --to …`."
            if self.is_surprising
            else ""
        )
        return f"new group {self.group!r} on topic {self.topic!r}: {'; '.join([what, *said])}.{advice}"


def first_reads(settings: Settings, topics: Collection[str]) -> list[FirstRead]:
    """Return what is about to be read of each topic on which the group has committed nothing.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user may not ask which groups there are.
    """
    by_topic: dict[str, list[Extent]] = {}
    for extent in extents(settings, topics):
        by_topic.setdefault(extent.topic, []).append(extent)
    new = {topic: some for topic, some in by_topic.items() if all(each.committed is None for each in some)}
    committed = commits(settings, [topic for topic, some in new.items() if any(each.lag for each in some)])
    from_end = settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
    return [
        FirstRead(topic, settings.group, sum(each.lag for each in some), from_end, _left(some, committed))
        for topic, some in new.items()
    ]


def _left(found: Sequence[Extent], committed: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[str, int]:
    """How many records each group has left on these partitions; a group without a commit there is none of theirs."""
    return {
        group: sum(max(0, each.end - max(each.first, at.get(each.place, 0))) for each in found)
        for group, at in committed.items()
        if any(each.place in at for each in found)
    }
