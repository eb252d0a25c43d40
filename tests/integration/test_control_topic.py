"""What was decided lies in Kafka, and in Redis for who asks often; a wiped Redis, or none, forgets nothing for good."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from bridge.embedded import EmbeddedKafka
from bridge.errors import NotDecided
from bridge.formats.group_decision import (
    GroupDecision,
    PublishedDecision,
    append_decision,
    halt_key,
    make_decision_entry,
)
from bridge.kafka import control_topic, topic_admin
from bridge.kafka.clients import ConfigResource, admin_client
from bridge.kafka.control_topic import ControlTopicFollower
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, make_decision, read_standing_decisions
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.servers.process import free_port

ORDERS = halt_key("orders")


def test_a_redis_that_went_back_does_not_hide_what_was_decided_since(there: Settings, mirror: DecisionMirror):
    halted = make_decision(there, mirror, ORDERS, {}, "ann", "closed").decision
    resumed = make_decision(there, None, ORDERS, None, "bob", "open", halted).decision
    assert read_standing_decisions(there, mirror) == {ORDERS: resumed}


def settings_of(group: str, servers: str, redis_url: str = "") -> Settings:
    return Settings(FileSettings(), EnvironmentSettings(BRIDGE_GROUP=group), redis_url, {"bootstrap.servers": servers})


@pytest.fixture
def group(topic_prefix: str) -> str:
    return f"{topic_prefix}g"


@pytest.fixture
def there(kafka: Any, redis_url: str, group: str) -> Settings:
    return settings_of(group, kafka.bootstrap_servers, redis_url)


@pytest.fixture
def mirror(redis_url: str, group: str) -> Iterator[DecisionMirror]:
    with closing(Ledger(redis_url, "", group)) as ledger:
        yield DecisionMirror(ledger)


def poll_until_caught_up(follower: ControlTopicFollower) -> list[PublishedDecision]:
    found, until = [], time.monotonic() + 20
    while not follower.caught_up:
        assert time.monotonic() < until
        found += follower.poll(0.1)
    return found


def test_what_is_decided_is_in_kafka_and_in_redis(there: Settings, mirror: DecisionMirror, group: str):
    first = make_decision(there, mirror, ORDERS, {"on": 1}, "ann", "closed")
    assert (first.unpublished, first.unmirrored) == ("", "")
    second = make_decision(there, mirror, ORDERS, None, "bob", "open", first.decision)
    assert second.decision.follows(first.decision)
    make_decision(there, mirror, "policy:h", {"max_retries": 3}, "eve", "more")
    expected = {ORDERS: second.decision, "policy:h": read_standing_decisions(there, mirror)["policy:h"]}
    assert mirror.read().in_force() == expected
    assert {
        key: each.decision for key, each in control_topic.read_published_decisions(there).standing.items()
    } == expected
    follower = ControlTopicFollower(there)
    try:
        assert [each.decision.why for each in poll_until_caught_up(follower)] == ["closed", "open", "more"]
        make_decision(there, mirror, ORDERS, {"on": 1}, "ann", "again")
        until, found = time.monotonic() + 10, list[PublishedDecision]()
        while not found:
            assert time.monotonic() < until
            found = follower.poll(0.1)
        assert (found[0].decision.why, follower.went_back) == ("again", False)
    finally:
        follower.close()


def test_the_topic_is_compacted_and_has_one_partition(there: Settings, kafka: Any, group: str):
    assert control_topic.ensure_control_topic(there)
    assert control_topic.ensure_control_topic(there)
    admin, name = admin_client(there.kafka), f"{group}.control"
    (asked,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]).values()
    assert asked.result(10)["cleanup.policy"].value == "compact"
    assert len(admin.list_topics(timeout=10).topics[name].partitions) == 1


def test_where_no_topic_may_be_made_none_is(kafka: Any, redis_url: str, group: str, mirror: DecisionMirror):
    made = settings_of(group, kafka.bootstrap_servers, redis_url)
    there = Settings(FileSettings(kafka_create_topics=False), made.environment, made.broker_url, made.kafka)
    outcome = make_decision(there, mirror, ORDERS, {}, "ann", "closed")
    assert "create it by hand" in outcome.unpublished
    assert control_topic.read_published_decisions(there).standing == {}
    assert mirror.read().in_force() == {ORDERS: outcome.decision}


def test_a_redis_that_was_wiped_does_not_hide_what_was_decided(there: Settings, mirror: DecisionMirror, redis_url: str):
    first = make_decision(there, mirror, ORDERS, {}, "ann", "closed").decision
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    assert read_standing_decisions(there, mirror) == {ORDERS: first}


def test_an_older_decision_never_takes_a_newer_ones_place_in_redis(mirror: DecisionMirror):
    first = append_decision(ORDERS, None, make_decision_entry({}, "", 1, ""))
    second = append_decision(ORDERS, None, make_decision_entry(None, "", 2, ""))
    mirror.note(second, 7)
    version = mirror.version()
    mirror.note(first, 3)
    mirror.note(second, 7)
    assert mirror.version() == version
    assert mirror.read().published[ORDERS] == PublishedDecision(second, 7)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "ANSWER_WITHIN", 0.3)


@pytest.mark.usefixtures("impatient")
def test_without_kafka_it_stands_in_redis_until_kafka_has_it(mirror: DecisionMirror, redis_url: str, group: str):
    nowhere = settings_of(group, f"127.0.0.1:{free_port()}", redis_url)
    outcome = make_decision(nowhere, mirror, ORDERS, {}, "ann", "closed")
    assert "Kafka does not answer" in outcome.unpublished
    assert mirror.read().unpublished == mirror.read().in_force() == {ORDERS: outcome.decision}
    mirror.note(outcome.decision, 0)
    assert mirror.read().unpublished == {}
    assert mirror.read().in_force() == {ORDERS: outcome.decision}


@pytest.mark.usefixtures("impatient")
def test_with_neither_kafka_nor_redis_nothing_is_decided(group: str):
    nowhere = settings_of(group, f"127.0.0.1:{free_port()}")
    dead = DecisionMirror(Ledger(f"redis://127.0.0.1:{free_port()}/0", "", group, timeout=0.5))
    with pytest.raises(NotDecided, match="neither Kafka nor Redis"):
        make_decision(nowhere, dead, ORDERS, {}, "ann", "closed")
    for one in (dead, None):
        with pytest.raises(NotDecided, match="are unknown"):
            read_standing_decisions(nowhere, one)
    with pytest.raises(NotDecided, match="no Redis"):
        make_decision(nowhere, None, ORDERS, {}, "ann", "closed")


def test_a_control_topic_that_is_made_anew_gets_again_what_was_decided(mirror: DecisionMirror):
    first = append_decision(ORDERS, None, make_decision_entry({}, "", 1, ""))
    mirror.note(first, 7)
    mirror.anew()
    assert mirror.read().unpublished == {ORDERS: first}
    assert mirror.read().in_force() == {ORDERS: first}
    mirror.note(first, 0)
    assert mirror.read().unpublished == {}
    assert mirror.read().published == {ORDERS: PublishedDecision(first, 0)}


def test_the_embedded_kafka_does_as_well(redis_url: str, group: str, mirror: DecisionMirror):
    with EmbeddedKafka() as embedded:
        there = settings_of(group, embedded.bootstrap_servers, redis_url)
        make_decision(there, mirror, ORDERS, {}, "ann", "closed")
        last: GroupDecision = make_decision(there, mirror, ORDERS, None, "ann", "open").decision
        assert {key: each.decision for key, each in control_topic.read_published_decisions(there).standing.items()} == {
            ORDERS: last
        }
