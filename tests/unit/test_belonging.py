"""Retry and replay topics are told by their names, and never taken for one another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.topics.belonging import Belonging, Belongings, ambiguities
from bridge.topics.names import TopicNames

NAMES = TopicNames("bridge")
TOPICS = st.lists(st.text("ab1.m-", min_size=1, max_size=6), min_size=1, max_size=4, unique=True)
PATTERNS = st.sampled_from(
    ["{topic}.retry.{delay}", "{topic}{delay}", "{topic}.{delay}", "{delay}.{topic}", "{group}-{delay}-{topic}-{delay}"]
)


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("orders.retry.5m", Belonging("retry", "orders", 300)),
        ("orders.retry.90s", Belonging("retry", "orders", 90)),
        ("orders.retry.24h", Belonging("retry", "orders", 86_400)),
        ("orders.eu.retry.1h", Belonging("retry", "orders.eu", 3_600)),
        ("orders.replay", Belonging("replay", "orders")),
        ("orders", None),
        ("orders.dlq", None),
        ("orders.retry.", None),
        ("orders.retry.0s", None),
        ("orders.retry.5d", None),
        ("ordersXretry.5m", None),
        ("other.retry.5m", None),
        ("other.replay", None),
    ],
)
def test_a_topic_belongs_to_the_source_of_whose_pattern_it_is(name: str, belongs: Belonging | None) -> None:
    assert Belongings(NAMES, ["orders", "orders.eu"]).of([name]).get(name) == belongs


def test_the_source_of_a_retry_topic_is_told_though_no_handler_names_it() -> None:
    ours = Belongings(NAMES, ["orders"])
    assert [ours.source_of(name) for name in ("gone.retry.5m", "a.retry.1s.retry.2s", "gone", "gone.replay")] == [
        "gone",
        "a.retry.1s",
        None,
        None,
    ]


@given(PATTERNS, TOPICS, st.integers(1, 400_000))
def test_where_no_fault_is_found_each_retry_topic_is_read_back_as_what_it_was_made_for(pattern, topics, delay) -> None:
    names = TopicNames("bridge", pattern)
    if ambiguities(names, topics):
        return
    ours = Belongings(names, topics)
    for topic in topics:
        made = names.retry(topic, delay)
        assert ours.of([made]) == {made: Belonging("retry", topic, delay)}


@pytest.mark.parametrize(
    ("pattern", "topics", "named"),
    [
        ("{topic}{delay}", ("a", "a1"), "a11s"),
        ("{topic}.retry.{delay}", ("orders", "orders.retry.5m"), "orders.retry.5m"),
        ("{topic}.{delay}", ("a", "a.10s"), "a.10s"),
    ],
)
def test_names_that_could_be_two_topics_are_a_fault(pattern: str, topics: tuple[str, ...], named: str) -> None:
    (fault,) = ambiguities(TopicNames("bridge", pattern), topics)
    assert f"topic {named!r} would be" in fault
    assert "kafka_retry_topic" in fault


def test_the_usual_patterns_have_no_fault() -> None:
    assert ambiguities(NAMES, ["orders", "orders.eu", "orders-2", "retry", "a"]) == []
