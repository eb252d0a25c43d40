"""What the project needs of a Kafka, held by the embedded one and by a real one alike."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from bridge.kafka.clients import AdminClient, NewTopic
from tests.contract.conftest import PARTITIONS, AnyKafka

PATIENCE = 30.0


@pytest.fixture
def topic(any_kafka: AnyKafka, topic_prefix: str) -> str:
    name = f"{topic_prefix}.orders"
    any_kafka.make_topic(name)
    return name


@pytest.fixture
def settings(any_kafka: AnyKafka, topic_prefix: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Of a consumer, as the bridge sets it up; a test's parameter is the protocol of its group."""
    classic = {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": any_kafka.session_timeout,
        "heartbeat.interval.ms": 300,
    }
    protocol = getattr(request, "param", "classic")
    return {
        "bootstrap.servers": any_kafka.bootstrap_servers,
        "group.id": f"{topic_prefix}.group",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 1000,
        **(classic if protocol == "classic" else {}),
    }


@pytest.fixture
def reader(settings: dict[str, Any], topic: str) -> Iterator[Consumer]:
    """A consumer of every partition of the topic: its own assignment, as joining a group takes seconds."""
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    yield consumer
    consumer.close()


@pytest.fixture
def join(settings: dict[str, Any], topic: str) -> Iterator[Callable[..., Consumer]]:
    """Make a member of one group; `callbacks` go to subscribe()."""
    members: list[Consumer] = []

    def make(*topics: str, **callbacks: Any) -> Consumer:
        member = Consumer(settings)
        member.subscribe(list(topics) or [topic], **callbacks)
        members.append(member)
        return member

    yield make
    for member in members:
        member.close()


def produce(kafka: AnyKafka, topic: str, *records: dict[str, Any]) -> list[Message]:
    """Produce and return what the broker has acknowledged, in the order of the acknowledgements."""
    outcomes: list[tuple[KafkaError | None, Message]] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "acks": "all"})
    for record in records:
        producer.produce(topic, on_delivery=lambda error, message: outcomes.append((error, message)), **record)
    assert producer.flush(PATIENCE) == 0
    assert [error for error, _ in outcomes] == [None] * len(records)
    return [message for _, message in outcomes]


def read(member: Consumer, count: int) -> list[Message]:
    """The next `count` records, or fewer when patience ends; errors are raised."""
    records: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count and time.monotonic() < deadline:
        for record in member.consume(count - len(records), timeout=0.2):
            if record.error():
                raise KafkaException(record.error())
            records.append(record)
    return records


def wait_for(condition: Callable[[], bool], *members: Consumer) -> bool:
    """Poll the members until the condition holds; False when patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        for member in members:
            member.poll(0.05)
    return condition()


def numbered(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": str(number).encode(), "partition": partition} for number in range(count)]


def values(records: list[Message]) -> list[int]:
    return [int(record.value() or b"-1") for record in records]


@pytest.mark.parametrize(
    "record",
    [
        {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("b", b"\x00\xff"), ("a", b"2")]},
        {"key": bytes(range(256)), "value": bytes(range(256)) * 100, "headers": [("empty", b""), ("null", None)]},
        {"key": None, "value": b"no key", "headers": [("größe", "größe".encode())]},
        {"key": b"tombstone", "value": None, "headers": []},
        {"key": b"", "value": b"", "headers": []},
    ],
    ids=["repeated headers", "every byte", "no key", "tombstone", "empty"],
)
def test_a_record_is_read_as_it_was_produced(any_kafka, topic, reader, record):
    produce(any_kafka, topic, {**record, "timestamp": 1_700_000_000_123})
    (found,) = read(reader, 1)
    assert (found.key(), found.value(), found.headers() or []) == (
        record["key"],
        record["value"],
        record["headers"],
    )
    assert found.timestamp()[1] == 1_700_000_000_123


def test_an_acknowledgement_tells_the_offset_that_the_record_is_read_at(any_kafka, topic, reader):
    acknowledged = produce(any_kafka, topic, *numbered(3, partition=2))
    assert [(message.partition(), message.offset()) for message in acknowledged] == [(2, 0), (2, 1), (2, 2)]
    assert [(record.partition(), record.offset()) for record in read(reader, 3)] == [(2, 0), (2, 1), (2, 2)]


def test_the_committed_offset_and_the_end_of_a_partition_tell_the_lag(any_kafka, topic, reader):
    produce(any_kafka, topic, *numbered(8))
    partition = TopicPartition(topic, 0, 5)
    assert reader.committed([partition], timeout=PATIENCE)[0].offset == OFFSET_INVALID
    reader.commit(offsets=[partition], asynchronous=False)
    assert reader.committed([partition], timeout=PATIENCE)[0].offset == 5
    assert reader.get_watermark_offsets(partition, timeout=PATIENCE) == (0, 8)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(any_kafka, topic, reader):
    produce(any_kafka, topic, *numbered(1, partition=0))
    assert values(read(reader, 1)) == [0]
    reader.pause([TopicPartition(topic, 0)])
    produce(any_kafka, topic, *numbered(1, partition=0), *numbered(1, partition=1))
    assert [record.partition() for record in read(reader, 1)] == [1]
    assert reader.poll(0.5) is None
    reader.resume([TopicPartition(topic, 0)])
    assert [(record.partition(), record.offset()) for record in read(reader, 1)] == [(0, 1)]


def test_a_group_starts_at_the_earliest_record_and_resumes_at_the_committed_one(any_kafka, topic, join):
    produce(any_kafka, topic, *numbered(10))
    first = join()
    records = read(first, 10)
    assert values(records) == list(range(10))
    first.store_offsets(offsets=[TopicPartition(topic, 0, 7)])
    first.commit(asynchronous=False)
    first.close()
    assert values(read(join(), 3)) == [7, 8, 9]


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["classic", "consumer"], indirect=True)
def test_members_share_the_partitions_and_the_last_one_goes_on_where_the_other_committed(any_kafka, topic, join):
    revoked: list[TopicPartition] = []
    first = join(on_revoke=lambda _, partitions: revoked.extend(partitions))
    assert wait_for(lambda: len(first.assignment()) == PARTITIONS, first)

    second = join()
    assert wait_for(lambda: len(second.assignment()) == PARTITIONS // 2, first, second)
    assert len(first.assignment()) == len(revoked) == PARTITIONS // 2, "cooperative: the rest is never taken away"
    assert not set(first.assignment()) & set(second.assignment())

    mine = first.assignment()[0].partition
    produce(any_kafka, topic, *numbered(6, mine))
    first.store_offsets(message=read(first, 6)[3])
    first.commit(asynchronous=False)
    first.close()
    assert values(read(second, 2)) == [4, 5]
    assert len(second.assignment()) == PARTITIONS


@pytest.mark.slow
def test_a_topic_that_does_not_exist_is_an_error_of_the_subscription_and_no_end_of_it(
    any_kafka, topic, topic_prefix, join
):
    absent = f"{topic_prefix}.absent"
    member = join(topic, absent)
    errors: list[int] = []

    def look() -> bool:
        record = member.poll(0.1)
        if record is not None and (error := record.error()):
            errors.append(error.code())
        return bool(errors) and len(member.assignment()) == PARTITIONS

    assert wait_for(look), errors
    assert set(errors) == {KafkaError.UNKNOWN_TOPIC_OR_PART}
    any_kafka.make_topic(absent)
    assert wait_for(lambda: len(member.assignment()) == 2 * PARTITIONS, member), "the topic that came is not read"


def test_topics_can_be_created_on_a_real_kafka_alone(any_kafka, topic_prefix):
    name = f"{topic_prefix}.created"
    admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap_servers})
    (future,) = admin.create_topics([NewTopic(name, 3, 1)], request_timeout=2).values()
    if any_kafka.creates_topics:
        future.result(PATIENCE)
        assert len(admin.list_topics(name, timeout=PATIENCE).topics[name].partitions) == 3
    else:  # it has no controller to ask
        with pytest.raises(KafkaException) as refused:
            future.result(PATIENCE)
        assert refused.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_record_too_large_for_the_topic_is_refused_by_a_real_kafka_alone(any_kafka, topic):
    outcomes: list[Any] = []
    producer = Producer({"bootstrap.servers": any_kafka.bootstrap_servers, "message.max.bytes": 10_000_000})
    producer.produce(topic, b"x" * 2_000_000, on_delivery=lambda error, _: outcomes.append(error and error.code()))
    assert producer.flush(PATIENCE) == 0
    assert outcomes == [KafkaError.MSG_SIZE_TOO_LARGE if any_kafka.limits_records else None]
