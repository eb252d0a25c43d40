"""Retry and replay topics are told by their names, and never taken for one another's."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.topic_names import DerivedTopic, DerivedTopics, TopicNames, find_ambiguous_names

NAMES = TopicNames("bridge")
TOPICS = st.lists(st.text("ab1.m-", min_size=1, max_size=6), min_size=1, max_size=4, unique=True)
PATTERNS = st.sampled_from(
    ["{topic}.retry.{delay}", "{topic}{delay}", "{topic}.{delay}", "{delay}.{topic}", "{group}-{delay}-{topic}-{delay}"]
)


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("orders.retry.5m", DerivedTopic("retry", "orders", 300)),
        ("orders.retry.90s", DerivedTopic("retry", "orders", 90)),
        ("orders.retry.24h", DerivedTopic("retry", "orders", 86_400)),
        ("orders.eu.retry.1h", DerivedTopic("retry", "orders.eu", 3_600)),
        ("orders.replay", DerivedTopic("replay", "orders")),
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
def test_a_topic_belongs_to_the_source_of_whose_pattern_it_is(name: str, belongs: DerivedTopic | None) -> None:
    assert DerivedTopics(NAMES, ["orders", "orders.eu"]).find_derived([name]).get(name) == belongs


def test_the_source_of_a_retry_topic_is_told_though_no_handler_names_it() -> None:
    ours = DerivedTopics(NAMES, ["orders"])
    assert [ours.source_of(name) for name in ("gone.retry.5m", "a.retry.1s.retry.2s", "gone", "gone.replay")] == [
        "gone",
        "a.retry.1s",
        None,
        None,
    ]


@given(PATTERNS, TOPICS, st.integers(1, 400_000))
def test_where_no_fault_is_found_each_retry_topic_is_read_back_as_what_it_was_made_for(pattern, topics, delay) -> None:
    names = TopicNames("bridge", pattern)
    if find_ambiguous_names(names, topics):
        return
    ours = DerivedTopics(names, topics)
    for topic in topics:
        made = names.retry(topic, delay)
        assert ours.find_derived([made]) == {made: DerivedTopic("retry", topic, delay)}


@pytest.mark.parametrize(
    ("pattern", "topics", "named"),
    [
        ("{topic}{delay}", ("a", "a1"), "a11s"),
        ("{topic}.retry.{delay}", ("orders", "orders.retry.5m"), "orders.retry.5m"),
        ("{topic}.{delay}", ("a", "a.10s"), "a.10s"),
    ],
)
def test_names_that_could_be_two_topics_are_a_fault(pattern: str, topics: tuple[str, ...], named: str) -> None:
    (fault,) = find_ambiguous_names(TopicNames("bridge", pattern), topics)
    assert f"topic {named!r} would be" in fault
    assert "kafka_retry_topic" in fault


def test_the_usual_patterns_have_no_fault() -> None:
    assert find_ambiguous_names(NAMES, ["orders", "orders.eu", "orders-2", "retry", "a"]) == []


@given(PATTERNS, TOPICS, st.text("ab1.m-hs25", min_size=1, max_size=12))
def test_a_name_is_read_as_its_pattern_says_for_each_source(pattern, topics, name) -> None:
    names = TopicNames("bridge", pattern)
    delays = {
        tier for tier in (name[a:b] for a in range(len(name)) for b in range(a, len(name) + 1)) if _is_delay(tier)
    }
    expected = {
        (topic, delay)
        for topic in topics
        for delay in delays
        if pattern.format(topic=topic, delay=delay, group="bridge") == name
    }
    found = {(each.source, each.delay) for each in DerivedTopics(names, topics).all_of(name) if each.kind == "retry"}
    assert found == {(topic, int(delay[:-1]) * {"h": 3600, "m": 60, "s": 1}[delay[-1]]) for topic, delay in expected}


def _is_delay(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,8}[hms]", text) is not None


def test_thousands_of_topics_are_told_in_time_that_grows_with_their_number_alone() -> None:
    topics = [f"orders.of.the.department.{number}" for number in range(4_000)]
    named = [name for topic in topics for name in (topic, NAMES.retry(topic, 300), NAMES.replay(topic))]
    begun = time.process_time()
    assert len(DerivedTopics(NAMES, topics).find_derived(named)) == 8_000
    # One regular expression for each pair took minutes.
    assert time.process_time() - begun < 10
