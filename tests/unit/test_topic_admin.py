"""Topics of ours are made to keep what their source may hold; what Kafka refuses ends in an answer each."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.errors import KafkaUnavailable
from bridge.kafka.managed_topic import (
    HEADROOM,
    USUAL_RECORD_SIZE,
    ManagedTopic,
    SourceLimits,
    TopicKind,
    TopicShape,
)
from bridge.kafka.topic_admin import (
    MOST_REPLICAS,
    MOST_TOPICS,
    add_partitions,
    create_control_topic,
    create_topics,
    read_shape,
    read_source_limits,
    split_requests,
)

SOURCE = "orders"
DLQ = ManagedTopic("orders.dlq", TopicKind.DEAD_LETTERS, SOURCE)
HOUR = ManagedTopic("orders.retry.1h", TopicKind.RETRY, SOURCE, 3_600)
SOURCES = {SOURCE: TopicShape(6, 3)}


def answer(found: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future


def refusal(code: int, *, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "said by Kafka", retriable=retriable))


class Admin:
    """Kafka's admin client: what the source's configuration says, and what becomes of topics that are to be made."""

    def __init__(self, made: Any = None, **config: Any) -> None:
        self._made, self._config, self.asked = made, config, list[Any]()

    def describe_configs(self, resources: Any, request_timeout: float) -> Any:
        if "refused" in self._config:
            return dict.fromkeys(resources, answer(self._config["refused"]))
        told = {name.replace("_", "."): SimpleNamespace(value=value) for name, value in self._config.items()}
        return dict.fromkeys(resources, answer(told))

    def create_topics(self, topics: Any, request_timeout: float) -> Any:
        self.asked += topics
        return {topic.topic: answer(self._made) for topic in topics}

    def create_partitions(self, more: Any, request_timeout: float) -> Any:
        self.asked += more
        return {each.topic: answer(self._made) for each in more}


def made(admin: Any, *wanted: ManagedTopic) -> list[str]:
    return create_topics(admin, wanted or (DLQ,), SOURCES)


def test_they_have_the_sources_partitions_and_copies_and_keep_more_than_it_may_hold_for_long_enough(caplog):
    caplog.set_level(logging.INFO)
    admin = Admin(max_message_bytes="2000000", min_insync_replicas="2")
    assert made(admin, DLQ, HOUR) == ["orders.dlq", "orders.retry.1h"]
    dead, hour = admin.asked
    for topic in admin.asked:
        assert (topic.num_partitions, topic.replication_factor) == (6, 3)
        assert topic.config["max.message.bytes"] == str(2_000_000 + HEADROOM)
        assert (topic.config["min.insync.replicas"], topic.config["cleanup.policy"]) == ("2", "delete")
        assert topic.config["retention.bytes"] == "-1"
    assert (dead.topic, dead.config["retention.ms"]) == ("orders.dlq", "-1")
    # Twice its delay, and a week for bridges that are away; by the broker's clock, not by a worker's.
    assert (hour.topic, hour.config["retention.ms"]) == ("orders.retry.1h", str((2 * 3_600 + 7 * 86_400) * 1000))
    assert hour.config["message.timestamp.type"] == "LogAppendTime"
    assert "'orders.dlq' created for dead letters, with 6 partitions; records are kept without end" in caplog.text
    assert "'orders.retry.1h' created for records that wait 3600 s" in caplog.text


@pytest.mark.parametrize(
    "config",
    [
        {"refused": refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED)},
        {"refused": TimeoutError()},
        {},
        {"max_message_bytes": None},
        {"max_message_bytes": "many", "min_insync_replicas": "some"},
    ],
)
def test_where_kafka_does_not_tell_what_the_source_demands_it_is_what_is_usual(config: dict[str, Any]):
    admin = Admin(**config)
    assert read_source_limits(admin, [SOURCE]) == {SOURCE: SourceLimits(USUAL_RECORD_SIZE, 0)}  # type: ignore[arg-type]
    made(admin)
    assert admin.asked[0].config["max.message.bytes"] == str(USUAL_RECORD_SIZE + HEADROOM)
    assert "min.insync.replicas" not in admin.asked[0].config


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        refusal(KafkaError._TIMED_OUT),
        refusal(KafkaError._TRANSPORT),
        refusal(KafkaError.NOT_CONTROLLER, retriable=True),
    ],
)
def test_a_kafka_that_may_answer_later_is_asked_again(error: Exception):
    with pytest.raises(KafkaUnavailable, match=r"orders\.dlq"):
        made(Admin(error))
    with pytest.raises(KafkaUnavailable, match=r"bridge\.control"):
        create_control_topic(Admin(error), "bridge.control", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "there", "level", "said"),
    [
        (KafkaError.TOPIC_ALREADY_EXISTS, True, None, ""),
        (KafkaError._UNSUPPORTED_FEATURE, True, logging.INFO, "creates topics on first use"),
        (KafkaError.UNSUPPORTED_VERSION, True, logging.INFO, "creates topics on first use"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, logging.ERROR, "Create it by hand, as `bridge topics` says"),
        (KafkaError.POLICY_VIOLATION, False, logging.ERROR, "said by Kafka"),
    ],
)
def test_what_no_waiting_helps_is_said_and_stops_nothing(code: int, there: bool, level: int | None, said: str, caplog):
    caplog.set_level(logging.INFO)
    assert made(Admin(refusal(code))) == (["orders.dlq"] if there else [])
    assert [(record.levelno, said in record.getMessage()) for record in caplog.records] == (
        [] if level is None else [(level, True)]
    )


class Controller(Admin):
    """Kafka's controller: it refuses all of a request for too many partitions, and topics of some names."""

    def __init__(self, refuses: str = "", silent_from: int | None = None) -> None:
        super().__init__()
        self.requests: list[int] = []
        self.topics: list[int] = []
        self._refuses, self._silent_from = refuses, silent_from

    def create_topics(self, topics: Any, request_timeout: float) -> Any:
        self.requests.append(sum(topic.num_partitions for topic in topics))
        self.topics.append(len(topics))
        if self._silent_from is not None and len(self.requests) >= self._silent_from:
            return {topic.topic: answer(refusal(KafkaError._TIMED_OUT)) for topic in topics}
        refused = self.requests[-1] > 10_000 or any(topic.topic == self._refuses for topic in topics)
        found = refusal(KafkaError.POLICY_VIOLATION) if refused else None
        return {topic.topic: answer(found) for topic in topics}

    def create_partitions(self, more: Any, request_timeout: float) -> Any:
        self.requests.append(sum(each.new_total_count for each in more))
        return super().create_partitions(more, request_timeout)


def tiers(count: int) -> list[ManagedTopic]:
    return [ManagedTopic(f"orders.retry.{n}m", TopicKind.RETRY, SOURCE, n * 60) for n in range(1, count + 1)]


def test_many_topics_are_made_in_requests_that_the_controller_takes():
    wanted = tiers(199)
    controller = Controller()
    assert len(create_topics(controller, wanted, {SOURCE: TopicShape(100)})) == 199  # type: ignore[arg-type]
    assert (len(controller.requests), max(controller.requests)) == (20, MOST_REPLICAS)
    add_partitions(controller, wanted, {SOURCE: TopicShape(100)})  # type: ignore[arg-type]
    assert (len(controller.requests), max(controller.requests)) == (40, MOST_REPLICAS)


def test_each_replica_of_a_partition_counts_in_a_request():
    controller = Controller()
    assert len(create_topics(controller, tiers(20), {SOURCE: TopicShape(100, 3)})) == 20  # type: ignore[arg-type]
    assert controller.requests == [300] * 6 + [200]
    add_partitions(controller, tiers(20), {SOURCE: TopicShape(100, 3)})  # type: ignore[arg-type]
    assert controller.requests[7:] == [300] * 6 + [200]


def test_many_small_topics_are_made_in_requests_of_few():
    # The controller counts the records of a request too: one for each topic, setting and partition.
    controller = Controller()
    assert len(create_topics(controller, tiers(250), {SOURCE: TopicShape(1)})) == 250  # type: ignore[arg-type]
    assert controller.topics == [MOST_TOPICS, MOST_TOPICS, 50]


def test_a_kafka_that_stops_answering_is_not_asked_for_the_rest_and_what_it_refused_is_said(caplog):
    controller = Controller("orders.retry.3m", silent_from=6)
    with pytest.raises(KafkaUnavailable, match=r"orders\.retry\.5m"):
        # Ten in a request: those of the first are refused with one of them, and are asked for alone.
        create_topics(controller, tiers(40), {SOURCE: TopicShape(100)})  # type: ignore[arg-type]
    assert controller.topics == [10, 1, 1, 1, 1, 1]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [words.split(":")[0] for words in errors] == ["topic 'orders.retry.3m' could not be created"]


def test_a_topic_that_is_refused_takes_none_of_its_request_with_it(caplog):
    wanted = tiers(5)
    made = create_topics(Controller("orders.retry.3m"), wanted, SOURCES)  # type: ignore[arg-type]
    assert made == [f"orders.retry.{minute}m" for minute in (1, 2, 4, 5)]
    assert [each.message.count("orders.retry.3m") for each in caplog.records] == [1]
    assert "deliveries that wait 180 s wait in the Celery broker" in caplog.text


def test_a_topic_larger_than_a_request_is_asked_for_alone():
    assert split_requests(["a", "b", "c", "d"], [600, 400, MOST_REPLICAS + 1, 1]) == [["a", "b"], ["c"], ["d"]]


def test_of_what_is_decided_the_last_of_each_key_is_kept_in_one_partition():
    admin = Admin()
    create_control_topic(admin, "bridge.control", {})  # type: ignore[arg-type]
    (topic,) = admin.asked
    assert (topic.num_partitions, topic.config) == (1, {"cleanup.policy": "compact"})


def test_what_is_decided_is_lost_no_sooner_than_any_source():
    admin = Admin(min_insync_replicas="2")
    create_control_topic(admin, "bridge.control", {"orders": TopicShape(6, 3), "mails": TopicShape(1, 1)})  # type: ignore[arg-type]
    topic = admin.asked[-1]
    assert (topic.num_partitions, topic.replication_factor) == (1, 3)
    assert topic.config == {"cleanup.policy": "compact", "min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("error", "said"),
    [(None, "has 6 partitions now"), (refusal(KafkaError.POLICY_VIOLATION), "could not be given 6 partitions")],
)
def test_a_topic_with_fewer_partitions_than_its_source_gets_as_many(error: Any, said: str, caplog):
    caplog.set_level(logging.INFO)
    admin = Admin(error)
    added = add_partitions(admin, [HOUR], SOURCES)  # type: ignore[arg-type]
    assert added == ({} if error else {"orders.retry.1h": 6})
    assert [(more.topic, more.new_total_count) for more in admin.asked] == [("orders.retry.1h", 6)]
    assert said in caplog.text
    add_partitions(admin, [], SOURCES)  # type: ignore[arg-type]
    assert len(admin.asked) == 1


def test_the_shape_of_a_topic_is_read_off_its_metadata():
    parts = {number: SimpleNamespace(replicas=[1, 2]) for number in range(4)}
    assert read_shape(SimpleNamespace(partitions=parts)) == TopicShape(4, 2)
    assert read_shape(SimpleNamespace(partitions={})) == TopicShape(0, 1)
