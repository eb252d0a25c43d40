"""Whether another application uses the group: what Kafka or Redis does not say is unknown, and no sign of none."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.inspection import setup_check, status, topic_list
from bridge.jobs.deployment_problems import GroupWatch, unknown_members
from bridge.kafka import consumer_groups
from bridge.kafka.clients import ConsumerGroupState, KafkaError, KafkaException
from bridge.kafka.consumer_groups import ConsumerGroup, describe_protocol, find_consumed_topics, read_members

UNKNOWN = [KafkaUnavailable("Kafka is silent."), LedgerUnavailable("Redis is silent."), None]


def answering(found: Any) -> Any:
    def find(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    return find


def kafka_that(answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings whose Kafka answers a question for the group's members with this."""
    future = SimpleNamespace(result=answer)
    admin = SimpleNamespace(describe_consumer_groups=lambda groups, **_: dict.fromkeys(groups, future))
    monkeypatch.setattr(consumer_groups, "admin_client", lambda _: admin)
    return SimpleNamespace(kafka={}, group="shop")


def test_a_kafka_that_does_not_say_who_is_in_the_group_is_no_empty_group(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    settings = kafka_that(fail, monkeypatch)
    with pytest.raises(KafkaUnavailable, match="list the members of the group 'shop'"):
        find_consumed_topics(settings)


def test_a_group_that_does_not_exist_has_no_members(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))

    assert read_members(kafka_that(fail, monkeypatch), "shop").size == 0


@pytest.mark.parametrize(
    ("state", "topics"),
    [("STABLE", {"orders", "orders.replay"}), ("UNKNOWN", None), ("COMPLETING_REBALANCING", None)],
)
def test_members_without_partitions_yet_are_unknown(
    state: str, topics: set[str] | None, monkeypatch: pytest.MonkeyPatch
):
    """librdkafka has no names for the states in which a group of the new protocol (KIP-848) gives out partitions."""
    places = [SimpleNamespace(topic=topic) for topic in ("orders", "orders", "orders.replay")]
    member = SimpleNamespace(assignment=SimpleNamespace(topic_partitions=places))
    described = SimpleNamespace(
        state=ConsumerGroupState[state], type=SimpleNamespace(name="CONSUMER"), members=[member]
    )
    assert find_consumed_topics(kafka_that(lambda _: described, monkeypatch)) == topics


@pytest.mark.parametrize(
    ("members", "chosen", "words"),
    [
        (0, "consumer", "has no member: a bridge joins by the protocol 'consumer'."),
        (1, "consumer", "uses the protocol 'consumer'."),
        (1, "classic", "and these settings choose 'classic': the group goes back when its last member by 'consumer'"),
    ],
)
def test_the_protocol_of_a_group_is_told(members: int, chosen: str, words: str):
    settings: Any = SimpleNamespace(kafka={"group.protocol": chosen}, group="shop")
    assert words in describe_protocol(settings, ConsumerGroup("consumer", members, False, frozenset()))


@pytest.mark.parametrize("found", UNKNOWN)
def test_status_and_check_say_that_it_is_unknown(found: Any, monkeypatch: pytest.MonkeyPatch):
    settings: Any = SimpleNamespace(kafka={}, group="shop", ledger_url="redis://localhost")
    ledger = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(setup_check, "find_redis_faults", lambda _: [])
    for module in (status, setup_check):
        monkeypatch.setattr(module, "find_foreign_topics", answering(found))
        both = SimpleNamespace(from_settings=lambda *_: ledger, once=lambda *_: ledger)
        monkeypatch.setattr(module, "Ledger", both)
    routes: Any = SimpleNamespace(topics=["orders"])
    (warning,) = setup_check._other_redis(settings, routes)
    sentence = unknown_members("shop", str(found) if found else "")
    assert status._find_other_application(settings, routes) == ((), sentence)
    assert (warning.level, warning.text) == ("warning", sentence)


@pytest.mark.parametrize(
    ("found", "problems", "unknown"), [(("mails",), 1, ""), ((), 0, ""), (None, 0, "It is unknown whether")]
)
def test_the_list_of_topics_says_it_too(found: Any, problems: int, unknown: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topic_list, "find_foreign_topics", answering(found))
    monkeypatch.setattr(
        topic_list, "Ledger", SimpleNamespace(from_settings=lambda _: SimpleNamespace(close=lambda: None))
    )
    settings: Any = SimpleNamespace(group="shop")
    foreign, words = topic_list._other_application(settings, SimpleNamespace(topics=["orders"]))  # type: ignore[arg-type]
    listed = topic_list.TopicList([], {}, "shop", foreign, words)
    assert [each.startswith("Another application uses") for each in listed.problems] == [True] * problems
    assert unknown in listed.unknown
    assert bool(listed.unknown) == bool(unknown)


def test_a_running_bridge_says_once_that_another_application_came_and_once_that_it_is_gone(
    caplog: pytest.LogCaptureFixture,
):
    answers = iter([None, (), ("mails",), KafkaUnavailable("silent"), ("mails",), None, ()])
    watch = GroupWatch("shop", lambda: answering(next(answers))())
    caplog.set_level(logging.INFO)
    looks = [(watch.poll(), watch.foreign) for _ in range(7)]
    mails = ("mails",)
    assert looks == [
        (False, ()),
        (True, ()),
        (True, mails),
        (False, mails),
        (True, mails),
        (False, mails),
        (True, ()),
    ]
    came, gone = [record.message for record in caplog.records]
    assert came.startswith("Another application uses the group 'shop'")
    assert gone == "No other application uses the group 'shop' any more."
