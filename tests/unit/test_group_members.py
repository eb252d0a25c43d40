"""Whether another application uses the group: what Kafka or Redis does not say is unknown, and no sign of none."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import KafkaUnavailable, LedgerUnavailable
from bridge.inspection import setup_check, status, topic_list
from bridge.jobs.deployment_problems import GroupWatch, unknown_members
from bridge.kafka.clients import KafkaError, KafkaException
from bridge.kafka.consumer_groups import find_consumed_topics, read_assigned_topics

UNKNOWN = [KafkaUnavailable("Kafka is silent."), LedgerUnavailable("Redis is silent."), None]


def answering(found: Any) -> Any:
    def find(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    return find


def test_a_kafka_that_does_not_say_who_is_in_the_group_is_no_empty_group():
    def fail(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    admin: Any = SimpleNamespace(list_groups=fail)
    with pytest.raises(KafkaUnavailable, match="list the members of the group 'shop'"):
        find_consumed_topics(admin, "shop")


def test_the_members_of_a_group_of_the_new_consumer_protocol_are_unknown_and_not_none():
    """Kafka 4.1 lists it (KIP-848), and describes it to `list_groups` as dead and empty, as after the last one left."""
    listed = SimpleNamespace(id="shop", error=None, state="Dead", protocol_type="", members=[])
    admin: Any = SimpleNamespace(list_groups=lambda *_, **__: [listed])
    with pytest.raises(KafkaUnavailable, match=r"the members of the group 'shop': it has or had .*\(KIP-848\)"):
        find_consumed_topics(admin, "shop")


@pytest.mark.parametrize(
    ("assignment", "topics"),
    [
        (b"\0\1\0\0\0\2\0\1a\0\0\0\1\0\0\0\7\0\2bc\0\0\0\0\xff\xff\xff\xff", ["a", "bc"]),
        (b"", []),
        (None, []),
        (b"\0\1\0\0\0\1\0\x50a", []),
    ],
)
def test_the_topics_of_a_member_are_read_from_its_assignment(assignment: bytes | None, topics: list[str]):
    assert read_assigned_topics(assignment) == topics


@pytest.mark.parametrize("found", UNKNOWN)
def test_status_and_check_say_that_it_is_unknown(found: Any, monkeypatch: pytest.MonkeyPatch):
    settings: Any = SimpleNamespace(kafka={}, group="shop")
    ledger = SimpleNamespace(close=lambda: None)
    for module in (status, setup_check):
        monkeypatch.setattr(module, "find_foreign_topics", answering(found))
        monkeypatch.setattr(module, "admin_client", lambda _: None)
        both = SimpleNamespace(from_settings=lambda *_: ledger, once=lambda *_: ledger)
        monkeypatch.setattr(module, "Ledger", both)
    routes: Any = SimpleNamespace(topics=["orders"])
    (warning,) = setup_check._other_redis(None, settings, routes)  # type: ignore[arg-type]
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
    foreign, words = topic_list._other_application(None, settings, SimpleNamespace(topics=["orders"]))  # type: ignore[arg-type]
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
