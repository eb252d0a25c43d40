"""Readiness and liveness: what a bridge says about itself at /readyz, /healthz and in its gauge."""

import pytest

from bridge.readiness import STUCK_AFTER, Readiness, decide_readiness, is_alive, is_all_halted, list_bridge_obstacles

HALTED = ("topic 'orders' is halted.",)


@pytest.mark.parametrize(
    ("obstacles", "said", "readiness"),
    [
        ((), {}, Readiness(True, [])),
        (("Kafka does not answer.",), {}, Readiness(False, ["Kafka does not answer."])),
        ((), {"halted": HALTED}, Readiness(True, [*HALTED])),
        ((), {"halted": HALTED, "consumes_nothing": True}, Readiness(False, [*HALTED])),
        ((), {"others": ("the recorder: it has ended.",)}, Readiness(True, ["the recorder: it has ended."])),
        (("no topic",), {"halted": HALTED, "others": ("c",)}, Readiness(False, ["no topic", *HALTED, "c"])),
    ],
)
def test_a_process_is_ready_without_an_obstacle_and_with_a_topic_that_is_not_halted(obstacles, said, readiness):
    assert decide_readiness(obstacles, **said) == readiness


@pytest.mark.parametrize(
    ("topics", "handlers", "all_halted"),
    [
        ((), (), False),
        (("a",), (), False),
        (("a", "b"), (), True),
        ((), {("a", "charge"), ("a", "notify"), ("b", "charge")}, True),
        (("b",), {("a", "charge"), ("a", "notify")}, True),
        (("b",), {("a", "charge"), ("b", "notify")}, False),
        ((), {("a", "charge"), ("a", "notify")}, False),
    ],
)
def test_all_is_halted_when_each_topic_is_as_a_whole_or_in_all_its_handlers(topics, handlers, all_halted):
    assert is_all_halted({"a": ["charge", "notify"], "b": ["charge"]}, topics, handlers) is all_halted


@pytest.mark.parametrize(
    ("said", "obstacles"),
    [
        ({"joined": True}, []),
        ({}, ["joining the consumer group"]),
        ({"kafka": "Kafka does not answer."}, ["Kafka does not answer."]),
        ({"joined": True, "handoff": "Redis is full."}, ["deliveries cannot be handed off: Redis is full."]),
        ({"joined": True, "missing": {"a"}}, []),
        ({"joined": True, "unreadable": "1 of 1 partition"}, ["1 of 1 partition"]),
        ({"joined": True, "unreadable": "1 of 1 partition", "kafka": "Kafka."}, ["Kafka."]),
        ({"joined": True, "missing": {"b", "a"}}, ["no topic to consume exists yet: a, b"]),
        ({"kafka": "Kafka.", "handoff": "Redis."}, ["Kafka.", "deliveries cannot be handed off: Redis."]),
    ],
)
def test_a_bridge_that_consumes_nothing_says_why(said, obstacles):
    usual = {"kafka": None, "handoff": None, "missing": (), "topics": ["a", "b"], "joined": False}
    assert list_bridge_obstacles(**usual | said) == obstacles


def test_a_loop_without_a_turn_for_a_minute_is_not_alive():
    assert is_alive(100.0, 100.0 + STUCK_AFTER - 1)
    assert not is_alive(100.0, 100.0 + STUCK_AFTER)
