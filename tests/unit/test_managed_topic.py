"""How a topic of ours must be, and what is said of one that is otherwise."""

from dataclasses import replace
from typing import Literal

import pytest

from bridge.kafka.managed_topic import (
    DAY,
    ManagedTopic,
    ReplicaState,
    SourceLimits,
    TopicKind,
    TopicShape,
    count_replicas,
    find_retention_fault,
    find_topic_faults,
    list_topics_beside,
)
from bridge.settings import EnvironmentSettings, FileSettings, Settings, TopicSettings

RETRY = ManagedTopic("orders.retry.1h", TopicKind.RETRY, "orders", 3_600)
REPLAY = ManagedTopic("orders.replay", TopicKind.REPLAY, "orders")
DLQ = ManagedTopic("orders.dlq", TopicKind.DEAD_LETTERS, "orders")
CONTROL = ManagedTopic("bridge.control", TopicKind.CONTROL, "")
FROM = ManagedTopic("orders", TopicKind.SOURCE, "orders")
SOURCE, ONE, LIMITS = TopicShape(6, 3), TopicShape(1, 3), SourceLimits(1_000_000, 2)


@pytest.mark.parametrize("ours", [RETRY, REPLAY, DLQ, CONTROL])
def test_a_topic_as_it_is_made_has_no_problem(ours: ManagedTopic):
    assert find_topic_faults(ours, ONE if ours is CONTROL else SOURCE, ours.config(LIMITS), SOURCE, LIMITS) == []


@pytest.mark.parametrize("ours", [RETRY, REPLAY, DLQ, CONTROL])
def test_of_what_kafka_does_not_tell_nothing_is_said(ours: ManagedTopic):
    assert find_topic_faults(ours, ONE if ours is CONTROL else SOURCE, {}, SOURCE, LIMITS) == []


@pytest.mark.parametrize(
    ("ours", "shape", "config", "said"),
    [
        (RETRY, SOURCE, {"retention.ms": "3600000"}, "dropped before they are due"),
        (RETRY, SOURCE, {"retention.ms": "1"}, "Set its retention.ms to 612000000"),
        (RETRY, SOURCE, {"cleanup.policy": "compact,delete"}, "of the parked records of a key only the last"),
        (RETRY, SOURCE, {"retention.ms": "3600001"}, "records that bridges do not read in that time"),
        (RETRY, SOURCE, {"retention.ms": str(7_200_000 + DAY - 1)}, "records that bridges do not read in that time"),
        (REPLAY, SOURCE, {"retention.ms": "1000"}, "records that bridges do not read in that time"),
        (RETRY, SOURCE, {"retention.bytes": "1000"}, "each of them a delivery"),
        (DLQ, SOURCE, {"retention.bytes": "1000"}, "each of them a dead letter"),
        (DLQ, SOURCE, {"cleanup.policy": "compact"}, "of dead letters only the last of a key"),
        (RETRY, TopicShape(4, 3), {}, "has 4 partitions, and 'orders' has 6"),
        (DLQ, TopicShape(6, 1), {}, "has 1 replicas, and 'orders' has 3"),
        (RETRY, SOURCE, {"max.message.bytes": "999999"}, "Set its max.message.bytes to 1065536"),
        (RETRY, SOURCE, {"min.insync.replicas": "4"}, "it takes no records"),
        (RETRY, SOURCE, {"min.insync.replicas": "1"}, "acknowledges records earlier than its source"),
        (FROM, SOURCE, {"min.insync.replicas": "4"}, "producers with acks=all cannot write"),
        (CONTROL, ONE, {"cleanup.policy": "compact", "min.insync.replicas": "4"}, "has 3: it takes no records"),
        (CONTROL, TopicShape(1, 1), {"cleanup.policy": "compact"}, "halts and policies are lost sooner"),
        (CONTROL, ONE, {"cleanup.policy": "delete"}, "what was decided is dropped with its age"),
        (CONTROL, ONE, {"cleanup.policy": "compact,delete"}, "what was decided is dropped with its age"),
        (CONTROL, SOURCE, {"cleanup.policy": "compact"}, "has 6 partitions: decisions are in the first alone"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    ours: ManagedTopic, shape: TopicShape, config: dict[str, str], said: str
):
    (found,) = find_topic_faults(ours, shape, config, SOURCE, LIMITS)
    assert f"topic {ours.name!r}" in found
    assert said in found


@pytest.mark.parametrize(("most", "source", "made"), [(None, 64, 64), (4, 64, 4), (4, 3, 3), (1, 64, 1)])
def test_a_topic_is_made_with_few_partitions_and_never_more_than_its_source(most: int | None, source: int, made: int):
    ours = replace(RETRY, most_partitions=most)
    assert ours.shape(TopicShape(source, 3)) == TopicShape(made, 3)


def test_a_topic_with_more_partitions_than_it_would_be_made_with_is_no_problem():
    few = replace(RETRY, most_partitions=4)
    assert find_topic_faults(few, SOURCE, {}, SOURCE, LIMITS) == []
    assert find_topic_faults(few, TopicShape(4, 3), {}, SOURCE, LIMITS) == []
    (said,) = find_topic_faults(few, TopicShape(2, 3), {}, SOURCE, LIMITS)
    assert "has 2 partitions, and 'orders' has 6, of which it needs 4 (kafka_retry_partitions)" in said


@pytest.mark.parametrize("order", ["key", "partition", None])
@pytest.mark.parametrize("most", [2, None])
def test_a_topic_that_becomes_ordered_wants_its_sources_partitions_beside_it(
    order: Literal["key", "partition"] | None, most: int | None
):
    topics = {"orders": TopicSettings(commit="completion", order=order)}
    settings = Settings(FileSettings(kafka_topics=topics, kafka_retry_partitions=most), EnvironmentSettings(), "", {})
    for ours in list_topics_beside(settings, "orders", [300]):
        few = most is not None and order is None
        assert ours.shape(SOURCE).partitions == (2 if few else 6)
        assert len(find_topic_faults(ours, TopicShape(2, 3), {}, SOURCE, LIMITS)) == (0 if few else 1)


@pytest.mark.parametrize(
    ("partitions", "in_sync", "found"),
    [
        ([(3, 3), (3, 3)], "2", ReplicaState()),
        ([(3, 3), (3, 2)], "2", ReplicaState(1, 0)),
        ([(3, 1), (3, 2)], "2", ReplicaState(2, 1)),
        ([(3, 0)], "", ReplicaState(1, 0)),
        # What can never be in sync is a setting that is wrong, and said as that.
        ([(3, 2)], "4", ReplicaState(1, 0)),
        ([], "1", ReplicaState()),
    ],
)
def test_copies_that_are_not_in_sync_are_counted_by_partition(partitions, in_sync, found):
    assert count_replicas(partitions, {"min.insync.replicas": in_sync}) == found


@pytest.mark.parametrize(
    ("ours", "config", "refused"),
    [
        (RETRY, {"retention.ms": "3600000"}, True),
        (RETRY, {"retention.ms": "0"}, True),
        (RETRY, {"retention.ms": "3600001"}, False),
        (RETRY, {"retention.ms": "-1"}, False),
        (RETRY, {"cleanup.policy": "compact"}, True),
        (RETRY, {"retention.ms": "null"}, False),
        (RETRY, {}, False),
        (REPLAY, {"retention.ms": "1"}, False),
        (DLQ, {"retention.ms": "1"}, False),
    ],
)
def test_a_retry_topic_that_would_drop_records_before_they_are_due_is_refused(ours, config, refused):
    assert (find_retention_fault(ours, config) is not None) == refused
