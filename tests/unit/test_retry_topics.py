"""Which retry topics a worker may park into: those that keep what waits, and those that it may make."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.errors import KafkaUnavailable
from bridge.kafka import retry_topics
from bridge.kafka.retry_topics import AGAIN_AFTER, KNOWN_FOR, SILENT_FOR, RetryTopics
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.unit.test_topic_admin import answer, refusal


class Kafka:
    """Its admin client: topics, how they keep records, and whether one may be made."""

    def __init__(self, **topics: int) -> None:
        self.topics = {name.replace("_", "."): partitions for name, partitions in topics.items()}
        self.configs: dict[str, dict[str, str]] = {}
        self.made: list[Any] = []
        self.refuses: Any = None
        self.away = False
        self.asked = 0
        self.now = 0.0

    def poll(self, timeout: float) -> None:
        """It has reported nothing."""

    def list_topics(self, timeout: float) -> Any:
        self.asked += 1
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        topics = {
            name: SimpleNamespace(partitions={i: SimpleNamespace(replicas=[1]) for i in range(n)}, error=None)
            for name, n in self.topics.items()
        }
        return SimpleNamespace(cluster_id="c", topics=topics)

    def describe_configs(self, resources: Any, request_timeout: float) -> Any:
        return {
            each: answer(
                {name: SimpleNamespace(value=value) for name, value in self.configs.get(each.name, {}).items()}
            )
            for each in resources
        }

    def create_topics(self, topics: Any, request_timeout: float) -> Any:
        if self.refuses is None:
            self.made += topics
            self.topics.update((topic.topic, topic.num_partitions) for topic in topics)
        return {topic.topic: answer(self.refuses) for topic in topics}


def over(kafka: Kafka, monkeypatch: pytest.MonkeyPatch, **chosen: Any) -> RetryTopics:
    monkeypatch.setattr(retry_topics, "admin_client", lambda properties: kafka)
    settings = Settings(FileSettings(**chosen), EnvironmentSettings(), "", {})
    return RetryTopics(settings, clock=lambda: kafka.now)


def test_a_missing_topic_is_made_when_it_is_needed_with_its_sources_partitions(monkeypatch):
    kafka = Kafka(orders=6)
    topics = over(kafka, monkeypatch, kafka_retry_partitions=None)
    assert topics.usable("orders", (300, 60), "g") == (60, 300)
    assert kafka.made == []
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"
    (made,) = kafka.made
    assert (made.topic, made.num_partitions) == ("orders.retry.5m", 6)
    assert made.config["retention.ms"] == str((2 * 300 + 7 * 86_400) * 1000)
    assert made.config["cleanup.policy"] == "delete"
    assert [topics.partition("orders.retry.5m", number) for number in (0, 5, 7)] == [0, 5, 1]
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"
    assert (len(kafka.made), kafka.asked) == (1, 1)


def test_beside_a_source_of_many_partitions_a_few_take_the_retries_of_all(monkeypatch):
    kafka = Kafka(orders=64)
    topics = over(kafka, monkeypatch)
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"
    assert kafka.made[0].num_partitions == 4
    assert [topics.partition("orders.retry.5m", number) for number in (0, 5, 63)] == [0, 1, 3]


def test_beside_an_ordered_source_a_retry_topic_has_as_many_partitions(monkeypatch):
    kafka = Kafka(orders=64)
    ordered = {"orders": {"commit": "completion", "order": "key"}}
    topics = over(kafka, monkeypatch, kafka_topics=ordered)
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"
    assert kafka.made[0].num_partitions == 64


def test_what_may_not_be_made_is_not_counted_on_and_tried_again_much_later(monkeypatch):
    kafka = Kafka(orders=1, orders_retry_1h=1)
    kafka.refuses = refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    topics = over(kafka, monkeypatch)
    assert topics.ready("orders", 300, "g") is None
    assert topics.usable("orders", (300, 3_600), "g") == (3_600,)
    kafka.now, kafka.refuses = AGAIN_AFTER, None
    assert topics.usable("orders", (300, 3_600), "g") == (300, 3_600)
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"


def test_where_topics_are_not_to_be_made_only_those_that_are_there_count(monkeypatch):
    kafka = Kafka(orders=1, orders_retry_1h=1)
    topics = over(kafka, monkeypatch, kafka_create_topics=False)
    assert topics.usable("orders", (300, 3_600), "g") == (3_600,)
    assert topics.ready("orders", 300, "g") is None
    assert kafka.made == []
    assert topics.existing("orders", (300, 3_600), "g") == ["orders.retry.1h"]


def test_what_another_has_made_meanwhile_is_there(monkeypatch):
    kafka = Kafka(orders=1)
    topics = over(kafka, monkeypatch)
    assert topics.usable("orders", (300,), "g") == (300,)
    kafka.refuses = refusal(KafkaError.TOPIC_ALREADY_EXISTS)
    kafka.topics["orders.retry.5m"] = 4
    assert topics.ready("orders", 300, "g") == "orders.retry.5m"
    kafka.now += KNOWN_FOR
    topics.usable("orders", (300,), "g")
    assert topics.partition("orders.retry.5m", 5) == 1


def test_a_topic_that_would_lose_what_waits_in_it_is_refused_and_said_once(monkeypatch, caplog):
    kafka = Kafka(orders=1, orders_retry_5m=1, orders_retry_1h=1, orders_retry_6h=1)
    kafka.configs = {
        "orders.retry.5m": {"retention.ms": "300000", "cleanup.policy": "delete"},
        "orders.retry.1h": {"retention.ms": "604800000", "cleanup.policy": "compact"},
        "orders.retry.6h": {"retention.ms": "604800000", "cleanup.policy": "delete"},
    }
    topics = over(kafka, monkeypatch)
    for _ in range(3):
        assert topics.usable("orders", (300, 3_600, 21_600), "g") == (21_600,)
        kafka.now += KNOWN_FOR
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 2
    assert "Retry topic unused" in said[0]
    assert "'orders.retry.5m' keeps records for 300 s (retention.ms)" in said[0]
    kafka.configs["orders.retry.5m"]["retention.ms"] = "-1"
    assert topics.usable("orders", (300, 3_600, 21_600), "g") == (300, 21_600)


def test_who_changes_a_policy_hears_why_a_tier_has_no_topic_and_has_it_made(monkeypatch, caplog):
    kafka = Kafka(orders=2, orders_retry_5m=1)
    kafka.configs = {"orders.retry.5m": {"retention.ms": "300000", "cleanup.policy": "delete"}}
    topics = over(kafka, monkeypatch)
    assert "keeps records for 300 s" in str(topics.fault("orders", 300, "g"))
    assert topics.fault("orders", 3_600, "g") is None
    assert [made.topic for made in kafka.made] == ["orders.retry.1h"]
    assert topics.fault("others", 3_600, "g") == "it is not there, and was not made"
    # It is told, and not logged: nothing is parked by who asks.
    assert caplog.records == []


def test_a_kafka_that_does_not_answer_is_said_to_be_away(monkeypatch):
    kafka = Kafka(orders=1)
    kafka.away = True
    topics = over(kafka, monkeypatch)
    for _ in range(3):
        with pytest.raises(KafkaUnavailable):
            topics.usable("orders", (300,), "g")
    # Who asked has waited: the next one does not wait again at once.
    assert kafka.asked == 1
    kafka.away, kafka.now = False, SILENT_FOR
    assert topics.usable("orders", (300,), "g") == (300,)


def test_the_group_is_the_deliverys_own(monkeypatch):
    kafka = Kafka(orders=1)
    topics = over(kafka, monkeypatch, kafka_retry_topic="{group}.{topic}.retry.{delay}")
    assert topics.ready("orders", 300, "shop") == "shop.orders.retry.5m"
