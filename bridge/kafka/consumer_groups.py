"""The consumer groups of a topic: their committed offsets, and the records that a new group is about to read."""

import struct
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.kafka.clients import (
    AdminClient,
    KafkaException,
    TopicPartition,
    admin_client,
    consumer_client,
    explain_error,
)
from bridge.kafka.partition_offsets import Extent, ExtentReader, is_offset, read_committed_offsets
from bridge.kafka.topic_admin import read_cluster
from bridge.settings import Settings

#: Seconds for one request to Kafka.
ANSWER_WITHIN: Final = 10.0
#: States of a group without assigned partitions yet.
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
#: The state in which `list_groups` has a group of another protocol (KIP-848), without members, also if it has some: it
#: cannot describe it.
UNDESCRIBED: Final = "Dead"
#: The protocol types of groups that commit offsets: of consumers, and of groups that never had a member.
COMMITTING: Final = frozenset({"consumer", ""})
#: Groups whose commits are read at once: each takes a client, and some milliseconds.
READERS: Final = 8
#: What confluent-kafka warns of at each `list_groups`. Where warnings are errors (`python -W error`, pytest's
#: `filterwarnings = error`) it goes on with the exception set, and ends as "Module not found when looking up
#: confluent_kafka.admin.GroupMetadata" (2.16.1, Metadata.c).
DEPRECATION: Final = r"list_groups\(\) is deprecated"

warnings.filterwarnings("ignore", DEPRECATION, DeprecationWarning)


def find_reading_groups(settings: Settings, topics: Collection[str]) -> dict[str, list[str]]:
    """Return, by topic, the groups with committed offsets there, sorted; topics without any are left out.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user lacks the permission.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for group, offsets in read_group_commits(settings, topics).items():
        for topic, _ in offsets:
            found[topic].add(group)
    return {topic: sorted(groups) for topic, groups in found.items()}


def read_group_commits(settings: Settings, topics: Collection[str]) -> dict[str, dict[Place, int]]:
    """Return the offsets that each consumer group has committed on partitions of these topics.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user lacks the permission.
    """
    if not topics:
        return {}
    admin = admin_client(settings.kafka)
    try:
        known = read_cluster(admin).topics
        places = [(topic, number) for topic in sorted(topics) if topic in known for number in known[topic].partitions]
        groups = sorted(str(each.id) for each in _list_groups(admin) if each.protocol_type in COMMITTING)
        read = partial(_read_commits, settings, places)
        with ThreadPoolExecutor(READERS, "group-commits") as readers:
            commits = dict(zip(groups, readers.map(read, groups), strict=True))
    except (KafkaException, KafkaUnavailable) as error:
        raise KafkaUnavailable(
            f"Kafka did not list the groups that read {', '.join(sorted(topics))}: {explain_error(error)}."
        ) from None
    return {group: offsets for group, offsets in commits.items() if offsets}


def _read_commits(settings: Settings, places: Sequence[Place], group: str) -> dict[Place, int]:
    """Return the offsets that a group has committed; a client of its own asks, and does not join it."""
    client = consumer_client(settings.kafka, group)
    try:
        partitions = read_committed_offsets(client, [TopicPartition(*place) for place in places]) if places else []
    finally:
        client.close()
    return {
        (partition.topic, partition.partition): partition.offset
        for partition in partitions
        if is_offset(partition.offset)
    }


def _list_groups(admin: AdminClient, group: str | None = None, within: float = ANSWER_WITHIN) -> list[Any]:
    """Return Kafka's groups with their members: all, or the one of this name, if it exists.

    librdkafka (seen: 2.16.0) aborts the process if a request of `describe_consumer_groups` or
    `list_consumer_group_offsets` times out while no broker responds, and one comes back
    (`rd_kafka_enq_once_del_source_return: Assertion failed`). `list_groups` is safe.

    Raises:
        KafkaException: Kafka did not answer.
    """
    listed: list[Any] = [
        *(admin.list_groups(timeout=within) if group is None else admin.list_groups(group, timeout=within))
    ]
    if group is not None:
        listed = [listing for listing in listed if str(listing.id) == group]
    for listing in listed:
        if listing.error is not None:
            raise KafkaException(listing.error)
    return listed


def has_members(settings: Settings, group: str, within: float = ANSWER_WITHIN) -> bool:
    """Return whether a group has a member.

    Raises:
        KafkaUnavailable: Kafka did not list the members.
    """
    return any(description.members for description in _list_group(admin_client(settings.kafka), group, within))


def find_consumed_topics(admin: AdminClient, group: str) -> frozenset[str] | None:
    """Return the topics whose partitions living members of a group have; `None` during a rebalance.

    Raises:
        KafkaUnavailable: Kafka did not list the members, or the group has or had some of another protocol.
    """
    listed = _list_group(admin, group)
    if any(each.state == UNDESCRIBED for each in listed):
        raise KafkaUnavailable(
            f"Kafka did not list the members of the group {group!r}: it has or had members of another protocol than "
            "the bridge's, the new one of consumers (KIP-848)."
        )
    if any(each.state in REBALANCING for each in listed):
        return None
    return frozenset(
        topic for each in listed for member in each.members for topic in read_assigned_topics(member.assignment)
    )


def _list_group(admin: AdminClient, group: str, within: float = ANSWER_WITHIN) -> list[Any]:
    try:
        return _list_groups(admin, group, within)
    except KafkaException as error:
        raise KafkaUnavailable(
            f"Kafka did not list the members of the group {group!r}: {explain_error(error)}."
        ) from None


def read_assigned_topics(assignment: bytes | None) -> list[str]:
    """Return the topics in the assignment of a group's member.

    It is a ConsumerProtocolAssignment: a version, and an array of topics with their partitions, all big-endian
    (https://kafka.apache.org/protocol). An assignment that cannot be read names no topic.
    """
    topics, at, data = [], 6, assignment or b""
    try:
        for _ in range(struct.unpack_from(">i", data, 2)[0]):
            (length,) = struct.unpack_from(">h", data, at)
            topics.append(data[at + 2 : at + 2 + length].decode())
            at += 2 + length
            at += 4 + 4 * struct.unpack_from(">i", data, at)[0]
    except (struct.error, UnicodeDecodeError):
        return []
    return topics


#: Maximum number of other groups that are named.
NAMED_GROUPS: Final = 3


class FirstRead(NamedTuple):
    """The records that the group reads first of a topic without committed offsets.

    Attributes:
        records: how many are read from the beginning, or skipped if it starts at the end.
        others: how many records each other group has left to read there.
    """

    topic: str
    group: str
    records: int
    from_end: bool
    others: Mapping[str, int]

    @property
    def is_surprising(self) -> bool:
        """Return whether it reads records that another group has read, as after a group was renamed."""
        return bool(self.records and self.others) and not self.from_end

    @property
    def words(self) -> str:
        """Return a sentence for the log and for `bridge check`."""
        what = (
            f"begins at the end, {format_count(self.records, 'record')} before that "
            f"{inflect_verb(self.records, 'are')} not read (KAFKA_AUTO_OFFSET_RESET)"
            if self.from_end
            else f"{format_count(self.records, 'record')} from the beginning"
        )
        sentences = [
            f"group {name!r} " + (f"has {left:,} left to read" if left else "is at the end")
            for name, left in sorted(self.others.items())[:NAMED_GROUPS]
        ]
        if (more := len(self.others) - NAMED_GROUPS) > 0:
            sentences.append(f"{more} other groups read it too")
        advice = (
            f" If this group takes the place of another one, set its offsets first: `bridge reset {self.topic} --to …`."
            if self.is_surprising
            else ""
        )
        return f"new group {self.group!r} on topic {self.topic!r}: {'; '.join([what, *sentences])}.{advice}"


def find_first_reads(
    settings: Settings, topics: Collection[str], reader: ExtentReader | None = None
) -> list[FirstRead]:
    """Return the first read of each topic on which the group has committed nothing; none of an unreadable topic.

    Parameters:
        reader: takes in the partitions that cannot be read.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user lacks the permission.
    """
    by_topic: dict[str, list[Extent]] = {}
    reader = reader or ExtentReader()
    for extent in reader.read(settings, topics):
        by_topic.setdefault(extent.topic, []).append(extent)
    # The group may have committed on the partition that cannot be read.
    unknown = {topic for topic, _ in reader.unreadable}
    new = {
        topic: some
        for topic, some in by_topic.items()
        if topic not in unknown and all(each.committed is None for each in some)
    }
    committed = read_group_commits(settings, [topic for topic, some in new.items() if any(each.lag for each in some)])
    from_end = settings.kafka.get("auto.offset.reset") in ("latest", "largest", "end")
    return [
        FirstRead(topic, settings.group, sum(each.lag for each in some), from_end, _records_left(some, committed))
        for topic, some in new.items()
    ]


def _records_left(extents: Sequence[Extent], committed: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[str, int]:
    """Return how many records each group with a commit on these partitions has left to read."""
    return {
        group: sum(max(0, extent.end - max(extent.first, at.get(extent.place, 0))) for extent in extents)
        for group, at in committed.items()
        if any(extent.place in at for extent in extents)
    }
