"""Topics of ours on a real Kafka: made as their source needs them, and refused where they would lose what they take."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bridge.errors import UnfitTopic
from bridge.kafka import admin_client
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from bridge.topics.at_need import KNOWN_FOR, RetryTopics
from bridge.topics.making import configs
from tests.processes import eventually
from tests.servers.kafka import KafkaServer

DAY = 86_400_000


def settings_of(kafka: KafkaServer, **file: Any) -> Settings:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    return Settings(FileSettings(**file), EnvironmentSettings(), "", properties)


def make(kafka: KafkaServer, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    given = {option.replace("_", "."): value for option, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=given)])[name].result(30)


def test_a_tier_that_is_needed_is_made_as_its_source_with_room_and_time_enough(
    kafka: KafkaServer, new_topic: Callable[..., str]
):
    source, chosen = new_topic(partitions=3), settings_of(kafka)
    assert RetryTopics(chosen).there(source, 3_600)
    admin, name = admin_client(chosen.kafka), f"{source}.retry.1h"
    assert len(admin.list_topics(timeout=10).topics[name].partitions) == 3
    config = configs(admin, [name])[name]
    assert config["retention.ms"] == str(7_200_000 + 7 * DAY)
    assert (config["cleanup.policy"], config["retention.bytes"]) == ("delete", "-1")
    assert int(config["max.message.bytes"]) > int(configs(admin, [source])[source]["max.message.bytes"])
    assert config["message.timestamp.type"] == "LogAppendTime"
    # By two at once, too.
    assert RetryTopics(chosen).there(source, 3_600)


def test_where_topics_may_not_be_made_a_missing_tier_is_told(kafka: KafkaServer, new_topic: Callable[..., str]):
    source = new_topic()
    assert not RetryTopics(settings_of(kafka, kafka_create_topics=False)).there(source, 60)
    assert not RetryTopics(settings_of(kafka)).there(f"{source}.that.is.not.there", 60)


@pytest.mark.slow
def test_a_broker_that_makes_topics_by_itself_makes_none_because_somebody_asked_whether_it_is_there(topic_prefix: str):
    with KafkaServer(auto_create_topics=True) as server:
        server.create_topics("orders")
        assert not RetryTopics(settings_of(server, kafka_create_topics=False)).there("orders", 60)
        known = admin_client(settings_of(server).kafka).list_topics(timeout=10).topics
        assert known.keys() - {"__consumer_offsets"} == {"orders"}


def test_a_tier_whose_retention_is_shorter_than_its_delay_is_refused_also_when_it_becomes_so(
    kafka: KafkaServer, new_topic: Callable[..., str]
):
    source, chosen, now = new_topic(), settings_of(kafka), [0.0]
    make(kafka, f"{source}.retry.1h", retention_ms="3600000")
    with pytest.raises(UnfitTopic, match=r"keeps records for 3600 s \(retention.ms\), and they wait there for 3600 s"):
        RetryTopics(chosen).there(source, 3_600)
    topics = RetryTopics(chosen, lambda: now[0])
    assert topics.there(source, 60)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    name = f"{source}.retry.1m"
    eventually(lambda: name in admin.list_topics(timeout=10).topics)
    admin.delete_topics([name])[name].result(30)
    eventually(lambda: name not in admin.list_topics(timeout=10).topics)
    assert topics.there(source, 60)
    now[0] = KNOWN_FOR
    assert topics.there(source, 60)
    eventually(lambda: name in admin.list_topics(timeout=10).topics)
