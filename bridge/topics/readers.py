"""Who reads topics: the consumer groups that have committed offsets there."""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import AdminClient, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, admin_client
from bridge.records.place import Place
from bridge.settings import Settings

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 10.0


def readers(settings: Settings, topics: Collection[str]) -> dict[str, list[str]]:
    """By topic, the groups that have committed offsets there, sorted; a topic that none reads is left out.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user may not ask.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for group, offsets in commits(settings, topics).items():
        for topic, _ in offsets:
            found[topic].add(group)
    return {topic: sorted(groups) for topic, groups in found.items()}


def commits(settings: Settings, topics: Collection[str]) -> dict[str, dict[Place, int]]:
    """By consumer group, the offsets that it has committed on partitions of these topics.

    Raises:
        KafkaUnavailable: Kafka did not answer, or this user may not ask.
    """
    if not topics:
        return {}
    admin = admin_client(settings.kafka)
    found: dict[str, dict[Place, int]] = defaultdict(dict)
    try:
        listed = admin.list_consumer_groups(request_timeout=ANSWER_WITHIN).result(ANSWER_WITHIN * 2)
        asked = [ConsumerGroupTopicPartitions(each.group_id) for each in listed.valid if each.group_id]
        # One question a group: Kafka's client takes no more.
        answers = [admin.list_consumer_group_offsets([each], request_timeout=ANSWER_WITHIN) for each in asked]
        for answer in answers:
            for group, future in answer.items():
                for place in future.result(ANSWER_WITHIN * 2).topic_partitions:
                    if place.topic in topics and place.offset >= 0:
                        found[group][place.topic, place.partition] = place.offset
    except (KafkaException, TimeoutError) as error:
        raise KafkaUnavailable(f"Kafka does not say which groups read {', '.join(sorted(topics))}: {error}.") from None
    return dict(found)


def consumed_now(admin: AdminClient, group: str) -> frozenset[str] | None:
    """Return the topics of which living members of a group have partitions.

    `None`: Kafka gives the partitions out anew just now.

    Raises:
        KafkaUnavailable: Kafka did not say who the members are.
    """
    try:
        (future,) = admin.describe_consumer_groups([group], request_timeout=ANSWER_WITHIN).values()
        found = future.result(ANSWER_WITHIN * 2)
    except (KafkaException, TimeoutError) as error:
        raise KafkaUnavailable(f"Kafka does not say who is in the group {group!r}: {error}.") from None
    if found.state in (ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING):
        return None
    return frozenset(place.topic for member in found.members for place in member.assignment.topic_partitions)
