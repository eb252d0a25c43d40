"""Names of topics."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.kafka.topic_names import MAX_TOPIC_NAME, TopicNames, format_delay

SECONDS = {"s": 1, "m": 60, "h": 3600}


@pytest.mark.parametrize(
    ("seconds", "name"),
    [(0, "0s"), (1, "1s"), (45, "45s"), (60, "1m"), (90, "90s"), (300, "5m"), (1800, "30m"), (3600, "1h"),
     (5400, "90m"), (86400, "24h")],
)  # fmt: skip
def test_a_delay_is_named_in_its_largest_unit(seconds, name):
    assert format_delay(seconds) == name


@given(st.integers(0, 10**9))
def test_the_name_of_a_delay_tells_the_delay_exactly(seconds):
    found = re.fullmatch(r"(\d+)([smh])", format_delay(seconds))
    assert found is not None
    number, unit = found.groups()
    assert int(number) * SECONDS[unit] == seconds


def test_the_names_are_those_of_the_contract():
    names = TopicNames("bridge")
    assert names.retry("orders", 300) == "orders.retry.5m"
    assert names.replay("orders") == "orders.replay"
    assert names.dead_letters("orders") == "orders.dlq"


def test_patterns_may_use_topic_delay_and_group():
    names = TopicNames("g", "{group}-{topic}-{delay}", "{group}.{topic}.again", "dead.{group}")
    assert names.retry("orders", 60) == "g-orders-1m"
    assert names.replay("orders") == "g.orders.again"
    assert names.dead_letters("orders") == "dead.g"


@pytest.mark.parametrize(
    ("names", "topics", "fault"),
    [
        (TopicNames("g"), ["orders", "orders.dlq"], "'orders.dlq' is consumed, but it is also where"),
        (TopicNames("g"), ["orders", "orders.replay"], "'orders.replay' is consumed"),
        (TopicNames("g", dead_letter_pattern="dead"), ["a", "b"], "would both go to 'dead'"),
        (TopicNames("g"), ["x" * MAX_TOPIC_NAME], "longer than Kafka's 249"),
        (TopicNames("g", replay_pattern="{topic}.dlq"), ["a"], "would both go to 'a.dlq'"),
        (TopicNames("g"), ["g.control"], "'g.control' is consumed, but it is also the control topic"),
        (TopicNames("g", dead_letter_pattern="{group}.control"), ["a"], "records of 'a' would both go to 'g.control'"),
        (TopicNames("a group"), ["a"], "kafka_control_topic: 'a group.control' is no name of a topic"),
    ],
)
def test_names_that_would_clash_are_a_fault(names, topics, fault):
    assert any(fault in found for found in names.clashes(topics))


def test_names_that_do_not_clash_are_no_fault():
    assert TopicNames("g").clashes(["orders", "payments", "orders"]) == []
    assert TopicNames("g", dead_letter_pattern="dead").clashes(["orders"]) == []
