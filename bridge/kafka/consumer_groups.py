"""The consumer groups of a topic: their committed offsets, and the records that a new group is about to read."""

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
    CLASSIC,
    NEW_PROTOCOL,
    AdminClient,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
    admin_client,
    consumer_client,
    explain_error,
    group_protocol,
)
from bridge.kafka.partition_offsets import Extent, ExtentReader, is_offset, read_committed_offsets
from bridge.kafka.topic_admin import read_cluster
from bridge.settings import Settings

#: Seconds for one request to Kafka.
ANSWER_WITHIN: Final = 10.0
#: Seconds after which librdkafka itself gives a request up: the most that it takes.
NO_TIMEOUT: Final = 3600.0
#: The states of a group in which some members have no partitions yet. librdkafka does not know those of the new
#: protocol, in which the group assigns them, or members have not confirmed them.
REBALANCING: Final = frozenset(
    {
        ConsumerGroupState.PREPARING_REBALANCING,
        ConsumerGroupState.COMPLETING_REBALANCING,
        ConsumerGroupState.UNKNOWN,
    }
)
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


def _list_groups(admin: AdminClient) -> list[Any]:
    """Return all groups of Kafka. The admin client's own request for them is not safe in an outage (`read_members`).

    Raises:
        KafkaException: Kafka did not answer.
    """
    listed: list[Any] = [*admin.list_groups(timeout=ANSWER_WITHIN)]
    for listing in listed:
        if listing.error is not None:
            raise KafkaException(listing.error)
    return listed


class ConsumerGroup(NamedTuple):
    """A consumer group with its members, as its coordinator has them.

    Attributes:
        protocol: `classic`, or `consumer` (KIP-848) as soon as one member has joined by it.
        size: how many there are; one that was killed counts until its session has timed out.
        rebalancing: whether some have no partitions yet, or have not given theirs up.
        topics: the topics whose partitions they have.
    """

    protocol: str
    size: int
    rebalancing: bool
    topics: frozenset[str]


def read_members(settings: Settings, group: str, within: float = ANSWER_WITHIN) -> ConsumerGroup:
    """Return the members of a group, of either protocol; none of a group that does not exist.

    It asks the group's coordinator alone, by a client of its own. librdkafka (seen: 2.16.0) aborts the process if such
    a request times out while no broker responds, and one comes back (`rd_kafka_enq_once_del_source_return: Assertion
    failed`). So the request has no time-out of its own: when the answer is too late, it ends with its client.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user lacks the permission.
    """
    admin = admin_client(settings.kafka)
    (future,) = admin.describe_consumer_groups([group], request_timeout=NO_TIMEOUT).values()
    try:
        described: Any = future.result(within)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return ConsumerGroup(CLASSIC, 0, False, frozenset())
        why = explain_error(error) or f"there was no answer for {within:g} s"
        raise KafkaUnavailable(f"Kafka did not list the members of the group {group!r}: {why}.") from None
    return ConsumerGroup(
        described.type.name.lower(),
        len(described.members),
        described.state in REBALANCING,
        frozenset(place.topic for member in described.members for place in member.assignment.topic_partitions),
    )


def describe_protocol(settings: Settings, members: ConsumerGroup) -> str:
    """Return which protocol the group uses, and whether these settings choose the other one (pure)."""
    chosen = group_protocol(settings.kafka)
    if not members.size:
        return f"the group {settings.group!r} has no member: a bridge joins by the protocol {chosen!r}."
    uses = f"the group {settings.group!r} uses the protocol {members.protocol!r}"
    if members.protocol == chosen:
        return f"{uses}."
    moves = (
        "Kafka does not move it while these members run, so stop all of its bridges before the first start with them"
        if chosen == NEW_PROTOCOL
        else f"the group goes back when its last member by {members.protocol!r} has left"
    )
    return f"{uses}, and these settings choose {chosen!r}: {moves}."


def find_consumed_topics(settings: Settings) -> frozenset[str] | None:
    """Return the topics whose partitions living members of the group have; `None` during a rebalance.

    Raises:
        KafkaUnavailable: Kafka did not list the members.
    """
    members = read_members(settings, settings.group)
    return None if members.rebalancing else members.topics


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
