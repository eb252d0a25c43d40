"""Topics of ours on a real Kafka: made as their source needs them, and refused where they would lose what they take."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from bridge.kafka.clients import admin_client
from bridge.kafka.managed_topic import TopicShape, list_topics_beside
from bridge.kafka.retry_topics import KNOWN_FOR, RetryTopics
from bridge.kafka.topic_admin import create_topics, read_topic_configs
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import choose, command, json_in, json_of
from tests.processes import Stack, eventually
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
    admin, name = admin_client(chosen.kafka), f"{source}.retry.1h"
    assert RetryTopics(chosen).ready(source, 3_600, "bridge") == name
    eventually(lambda: name in admin.list_topics(timeout=10).topics)
    assert len(admin.list_topics(timeout=10).topics[name].partitions) == 3
    config = read_topic_configs(admin, [name])[name]
    assert config["retention.ms"] == str(7_200_000 + 7 * DAY)
    assert (config["cleanup.policy"], config["retention.bytes"]) == ("delete", "-1")
    assert int(config["max.message.bytes"]) > int(read_topic_configs(admin, [source])[source]["max.message.bytes"])
    assert config["message.timestamp.type"] == "LogAppendTime"
    # By two at once, too.
    assert RetryTopics(chosen).ready(source, 3_600, "bridge") == name


def test_where_topics_may_not_be_made_a_missing_tier_is_told(kafka: KafkaServer, new_topic: Callable[..., str]):
    source = new_topic()
    assert RetryTopics(settings_of(kafka, kafka_create_topics=False)).ready(source, 60, "bridge") is None
    assert RetryTopics(settings_of(kafka)).ready(f"{source}.that.is.not.there", 60, "bridge") is None


@pytest.mark.slow
def test_a_broker_that_makes_topics_by_itself_makes_none_because_somebody_asked_whether_it_is_there(topic_prefix: str):
    with KafkaServer(auto_create_topics=True) as server:
        server.create_topics("orders")
        assert RetryTopics(settings_of(server, kafka_create_topics=False)).ready("orders", 60, "bridge") is None
        known = admin_client(settings_of(server).kafka).list_topics(timeout=10).topics
        assert known.keys() - {"__consumer_offsets"} == {"orders"}


def test_a_tier_whose_retention_is_shorter_than_its_delay_is_refused_also_when_it_becomes_so(
    kafka: KafkaServer, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
):
    source, chosen, now = new_topic(), settings_of(kafka), [0.0]
    make(kafka, f"{source}.retry.1h", retention_ms="3600000")
    topics = RetryTopics(chosen, lambda: now[0])
    assert topics.usable(source, (60, 3_600, 86_400), "bridge") == (60, 86_400)
    assert "keeps records for 3600 s (retention.ms), and they wait there for 3600 s" in caplog.text
    name = topics.ready(source, 60, "bridge") or ""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eventually(lambda: name in admin.list_topics(timeout=10).topics)
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    shorter = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([shorter]).values()
    altered.result(30)
    now[0] = 2 * KNOWN_FOR
    assert eventually(lambda: RetryTopics(chosen).usable(source, (60,), "bridge") == ())
    assert topics.usable(source, (60, 86_400), "bridge") == (86_400,)


def test_a_group_gets_all_its_topics_also_where_one_request_for_them_is_refused(
    own_kafka: KafkaServer, caplog: pytest.LogCaptureFixture
):
    chosen, sources = settings_of(own_kafka), {f"orders{number}": TopicShape(120) for number in range(20)}
    wanted = [ours for name in sources for ours in list_topics_beside(chosen, name, (60, 300, 1_800, 3_600, 21_600))]
    admin = admin_client(chosen.kafka)
    at_once = admin.create_topics([NewTopic(ours.name, 120, 1) for ours in wanted], request_timeout=30)
    refusals = [str(future.exception(30)) for future in at_once.values()]
    assert all("Excessively large number of partitions per request" in words for words in refusals)

    caplog.set_level("INFO")
    names = [ours.name for ours in wanted]
    assert create_topics(admin, wanted, sources) == names
    assert sum("created for" in record.getMessage() for record in caplog.records) == len(names) == 140
    # The controller has them: it creates none of them again.
    caplog.clear()
    assert create_topics(admin, wanted, sources) == names
    assert caplog.records == []


def listed(stack: Stack, *options: str, code: int) -> dict[str, Any]:
    """`bridge topics --json`, by the topics' names without the stack's prefix."""
    printed = command(stack, "topics", "--json", *options, code=code)
    found = json_in(printed)
    return {each["topic"].removeprefix(f"{stack.prefix}."): each for each in found}


def test_topics_lists_what_the_handlers_need_and_makes_what_is_missing(stack: Stack):
    stack.environ["TEST_DELAY"] = "300"
    stack.make_topics("orders", partitions=2)
    found = listed(stack, code=1)
    assert list(found) == ["orders", "orders.retry.5m", "orders.replay", "orders.dlq", "group.control"]
    missing = found["orders.retry.5m"]
    assert missing == {
        "topic": stack.topic("orders.retry.5m"),
        "kind": "retry",
        "source": stack.topic("orders"),
        "delay": 300,
        "use": "needed",
        "exists": False,
        "partitions": None,
        "retention_ms": None,
        "out_of_sync": 0,
        "problem": missing["problem"],
        "left": None,
    }
    assert "`bridge topics --create` makes it" in missing["problem"]

    found = listed(stack, "--create", code=0)
    assert {name: (each["kind"], each["partitions"]) for name, each in found.items()} == {
        "orders": ("source", 2),
        "orders.retry.5m": ("retry", 2),
        "orders.replay": ("replay", 2),
        "orders.dlq": ("dead letters", 2),
        "group.control": ("control", 1),
    }
    made = found["orders.retry.5m"]
    assert (made["retention_ms"], made["problem"], made["left"]) == (600_000 + 7 * DAY, None, 0)
    assert "300 s" in command(stack, "topics")


@pytest.mark.slow
def test_a_tier_that_nobody_needs_any_more_is_listed_with_what_it_holds_until_it_is_drained(stack: Stack):
    stack.make_topics("orders", "orders.retry.7m", "orders.retry.10m", "gone.retry.5m", "gone")
    listed(stack, "--create", code=0)
    stack.produce("orders.retry.7m", 1, 2, 3)
    # Another group's, for all that can be known: this one has committed nothing there.
    found = listed(stack, code=0)
    assert "gone.retry.5m" not in found
    seven, ten = found["orders.retry.7m"], found["orders.retry.10m"]
    assert (seven["use"], seven["left"], seven["kind"], seven["delay"]) == ("drained", 3, "retry", 420)
    # `RetryLater` may ask for it: it is one of kafka_retry_tiers.
    assert (ten["use"], ten["left"]) == ("at need", 0)
    assert "keeps records" not in (ten["problem"] or "")


@pytest.mark.slow
def test_what_a_member_consumes_that_this_redis_does_not_know_is_another_applications_and_not_abandoned(stack: Stack):
    stack.make_topics("orders", "mails", "mails.retry.5m")
    theirs = [stack.topic("mails"), stack.topic("mails.retry.5m")]
    group = stack.environ["BRIDGE_GROUP"]
    # By the new protocol (KIP-848), and the bridge by the classic one: a group may have both.
    member = Consumer({"bootstrap.servers": stack.kafka, "group.id": group, "group.protocol": "consumer"})
    member.subscribe(theirs)
    try:
        eventually(lambda: member.poll(0.1) is None and len(member.assignment()) == 2, 30)
        member.commit(offsets=[TopicPartition(theirs[1], 0, 0)], asynchronous=False)
        assert "mails.retry.5m" not in listed(stack, code=1)
        text = command(stack, "check", code=1)
        assert f"Another application uses the group {group!r}" in text
        assert stack.topic("mails") in text
        problems = json_of(stack, "status")["problems"]
        assert any(f"Another application uses the group {group!r}" in problem for problem in problems)
        bridge = stack.bridge(wait=False)
        words = f"Another application uses the group {group!r}: a member that is no bridge of this Redis"
        # Its member takes part in the rebalance.
        eventually(lambda: member.poll(0.1) or words in bridge.text, 60)
        assert bridge.terminate() == 0
    finally:
        member.close()
    assert listed(stack, code=0)["mails.retry.5m"]["use"] == "abandoned"
    assert "Another application" not in command(stack, "check", code=None)


@pytest.mark.slow
def test_topics_that_got_more_partitions_are_listed_with_them_at_once(stack: Stack):
    stack.make_topics("orders", partitions=3)
    stack.make_topics("orders.replay", "orders.dlq")
    found = listed(stack, "--create", code=0)
    assert [found[name]["partitions"] for name in ("orders.replay", "orders.dlq")] == [3, 3]


@pytest.mark.slow
def test_a_source_that_got_more_partitions_has_as_many_beside_it_after_the_next_start(stack: Stack):
    stack.make_topics("orders", "orders.replay")
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    (grown,) = admin.create_partitions([NewPartitions(stack.topic("orders"), 3)]).values()
    grown.result(30)
    problem = eventually(lambda: listed(stack, code=1)["orders.replay"]["problem"])
    assert "has 1 partition, and" in problem
    stack.bridge().says(f"topic '{stack.topic('orders.replay')}' has 3 partitions now.")
    assert listed(stack, "--create", code=0)["orders.replay"]["partitions"] == 3


def test_a_bridge_does_not_start_where_a_retry_topic_would_drop_what_is_parked_there(kafka: KafkaServer, stack: Stack):
    stack.environ["TEST_DELAY"] = "3600"
    stack.make_topics("orders")
    make(kafka, stack.topic("orders.retry.1h"), retention_ms="1800000", cleanup_policy="delete")
    bridge = stack.bridge(wait=False)
    assert bridge.ends(30) == 1
    assert "keeps records for 1800 s (retention.ms), and they wait there for 3600 s" in bridge.text
    assert "Traceback" not in bridge.text
    words = command(stack, "check", "--json", code=1)
    faults = [each["text"] for each in json_in(words) if each["level"] == "fault"]
    assert [fault for fault in faults if "would be dropped before they are due" in fault] == faults
    assert listed(stack, code=1)["orders.retry.1h"]["problem"]


def test_check_says_what_is_missing_where_the_bridge_may_not_make_it(stack: Stack):
    choose(stack, {}, kafka_create_topics=False)
    stack.make_topics("orders")
    words = command(stack, "check", "--json", code=0)
    texts = " ".join(each["text"] for each in json_in(words) if each["level"] == "warning")
    for name in ("orders.replay", "orders.dlq"):
        assert f"topic '{stack.topic(name)}' does not exist and kafka_create_topics is False" in texts
