"""What there is too much of pauses its topics, on real servers: bytes, work, dead letters, what is parked."""

from typing import Any

import pytest

from tests.delivery_checks import choose, json_of
from tests.processes import Served, Stack, eventually


def pressed(stack: Stack, **settings: Any) -> None:
    choose(stack, {"orders": {"commit": "completion"}}, **settings)
    stack.environ["HANDLERS"] = "tests.handlers.simple"


def paused(bridge: Served, reason: str) -> float:
    return bridge.metric("bridge_partition_paused", reason=reason)


def backlog(bridge: Served, *states: str) -> float:
    return sum(bridge.metric("bridge_backlog_deliveries", state=state) for state in states)


def test_a_queue_that_is_large_pauses_its_topics_on_a_bridge_that_takes_them_over_too(stack: Stack):
    pressed(stack, kafka_pause_above_bytes=100_000)
    stack.make_topics("orders", partitions=2)
    first, reason = stack.bridge(), f"bytes of queue {stack.queue}"
    for partition in (0, 1):
        stack.produce("orders", *["x" * 2_000] * 50, partition=partition)
    eventually(lambda: paused(first, reason) == 2, 20, "both are paused")
    queued = stack.waiting()
    stack.produce("orders", *["x" * 2_000] * 20, partition=1)
    second = stack.bridge()
    # Kafka's group decides which of them the second has: none of those it gets goes on.
    eventually(lambda: 1 <= paused(second, reason) == 2 - paused(first, reason), 20, "what it has is paused")
    eventually(lambda: [backlog(each, "ready") for each in (first, second)] == [queued] * 2, 20, "each shows all")
    assert [backlog(each, "taken") for each in (first, second)] == [0, 0]
    eventually(lambda: [backlog(each, "due") >= 20 for each in (first, second)] == [True] * 2, 20, "and what is due")
    assert stack.waiting() == queued
    stack.worker()
    eventually(lambda: len(set(stack.done())) == 120, 30)
    eventually(lambda: paused(first, reason) + paused(second, reason) == 0, 10)
    eventually(lambda: backlog(first, "ready", "taken", "due") == 0, 10)
    assert (first.count("paused: queue"), first.count("resumed: queue")) == (1, 1)


@pytest.mark.slow
def test_a_queue_of_slow_work_pauses_its_topics_until_half_of_it_is_done(stack: Stack):
    pressed(stack, kafka_pause_above_seconds=1)
    stack.make_topics("orders")
    bridge, reason = stack.bridge(), f"work in queue {stack.queue}"
    worker = stack.worker("-c", "1")
    stack.produce("orders", *[{"sleep": 0.08}] * 60)
    eventually(lambda: paused(bridge, reason) == 1, 20, "it is too much work")
    seconds = eventually(lambda: bridge.metric("bridge_backlog_seconds"), 10)
    assert 0.08 < seconds < 60 * 0.3
    assert eventually(lambda: backlog(bridge, "taken"), 10) <= 60
    eventually(lambda: len(stack.done()) == 60, 30)
    eventually(lambda: paused(bridge, reason) == 0, 10)
    assert "Traceback" not in bridge.text + worker.text


@pytest.mark.slow
def test_a_topic_of_which_too_many_die_is_paused_and_a_person_is_told(stack: Stack):
    pressed(stack, kafka_pause_dead_letters_a_minute=5)
    stack.make_topics("orders")
    bridge, reason = stack.bridge(), f"dead letters of {stack.topic('orders')}"
    stack.worker()

    def dies_on() -> bool:
        stack.produce("orders", *[{"dead": "broken"}] * 3)
        return paused(bridge, reason) == 1

    def says_so(status: dict[str, Any]) -> bool:
        return any("too many of its deliveries died" in each for each in status["problems"])

    eventually(dies_on, 30, "too many died")
    status = eventually(lambda: told if says_so(told := json_of(stack, "status")) else None, 20, "told")
    assert set(status["queues"][stack.queue]["backlog"]) == {"ready", "taken", "due"}
    assert "dead letters within a minute (paused above 5, resumed below 2.5)" in bridge.text


@pytest.mark.slow
def test_a_topic_of_which_much_is_parked_is_paused_and_its_retry_topics_go_on(stack: Stack):
    pressed(stack, kafka_pause_above_parked=5, kafka_park_after=1)
    stack.environ["TEST_DELAY"] = "6"
    stack.make_topics("orders")
    bridge, reason = stack.bridge(), f"parked records of {stack.topic('orders')}"
    stack.worker()
    stack.produce("orders", *[{"fail": True}] * 8)
    eventually(lambda: paused(bridge, reason) == 1, 20, "too much is parked")
    (later,) = stack.produce("orders", "later")
    stack.dead("orders", 8, 40)
    eventually(lambda: later in stack.done() and not paused(bridge, reason), 20, "it goes on")
