"""In whatever order Kafka, Redis and bridges come and go, what was decided last stands everywhere at the end."""

from typing import Any

import pytest
from celery import Celery
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridge.formats.group_decision import GroupDecision
from bridge.handler_routes import Handler, Routes
from bridge.ledger import Ledger
from bridge.operator_actions import topic_halt as commands
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.decision_world import KEY, SETTINGS, World, agree, broken_world
from tests.hypothesis_profiles import examples

STEPS = st.lists(
    st.sampled_from(
        ["halt", "resume", "look 0", "look 1", "start 0", "kafka", "redis", "wipe", "worker", "topic made again"]
    ),
    max_size=14,
)


def resumed(redis_url: str, *topics: str) -> dict[str, Any]:
    """What `bridge resume` says; without topics as with `--all`."""
    chosen = Settings(FileSettings(), EnvironmentSettings(), redis_url, {})
    routes = Routes({"orders": Handler("orders", ("orders",), "q", 1, 0.0)})
    with Celery("here", broker=redis_url, broker_transport="lossless.transport:Transport", set_as_current=False) as app:
        found: dict[str, Any] = commands.resume_topics(app, chosen, routes, topics or None, "", "bob")["topics"]
        return found


@pytest.mark.parametrize("topics", [("orders",), ()], ids=["named", "all"])
@pytest.mark.parametrize("lost", ["wiped", "went back"])
def test_a_topic_that_kafka_alone_knows_as_halted_is_resumed_while_kafka_cannot_be_asked(
    broken: World, redis_url: str, topics: tuple[str, ...], lost: str
):
    if lost == "went back":
        broken.decide(halts=False)
    broken.mirror.up = False
    broken.decide(halts=True)
    broken.mirror.up = True
    if lost == "wiped":
        broken.wipe()
    broken.kafka.up = False
    (how,) = resumed(redis_url, *topics).values()
    assert (how["halted"], how["changed"]) == (False, True)
    assert "Kafka does not answer" in how["unpublished"]
    broken.settle()
    agree(broken, halts=False)
    assert resumed(redis_url, "orders")["orders"] == {"halted": False, "changed": False}


@pytest.mark.parametrize("topics", [("orders",), ()], ids=["named", "all"])
def test_a_topic_that_redis_alone_has_as_resumed_is_resumed_in_kafka_by_the_next_command(
    broken: World, redis_url: str, topics: tuple[str, ...]
):
    broken.decide(halts=True)
    broken.kafka.up = False
    assert "Kafka does not answer" in resumed(redis_url, "orders")["orders"]["unpublished"]
    broken.kafka.up = True
    (how,) = resumed(redis_url, *topics).values()
    assert not how["unpublished"]
    broken.wipe()
    broken.settle()
    agree(broken, halts=False)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@example(["halt", "redis", "topic made again", "resume", "redis"])
@example(["halt", "look 0", "redis", "wipe", "topic made again", "halt", "look 0", "topic made again"])
@example(["halt", "topic made again", "look 1", "wipe", "topic made again"])
@example(["kafka", "halt", "redis", "kafka", "resume", "redis"])
@example(["kafka", "halt", "redis", "start 0", "kafka", "resume", "start 1", "redis"])
def test_what_was_decided_last_stands_everywhere_as_long_as_kafka_redis_or_a_bridge_knows_it(
    there: tuple[Any, Ledger], steps: list[str]
):
    with broken_world(*there) as world:
        for step in steps:
            known = world.last
            world.do(step)
            world.is_lost = not world.knows(world.last) or (world.is_lost and world.last is known)
        world.settle()
        stands = world.mirror.read().in_force()
        if not world.is_lost:
            assert stands == ({} if world.last is None else {KEY: world.last})
        assert world.mirror.read().unpublished == {}
        assert {key: each.decision for key, each in world.kafka.published(SETTINGS).standing.items()} == stands
        agree(world, halts=KEY in stands and stands[KEY].data is not None)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            ["halt", "resume", "look 0", "look 1", "start 0", "kafka", "slow", "arrives", "redis", "wipe", "worker"]
        ),
        max_size=16,
    )
)
@example(["kafka", "halt", "worker", "wipe"])
@example(["slow", "halt", "slow", "resume", "arrives"])
@example(["slow", "halt", "slow", "resume", "arrives", "start 0", "start 1"])
@example(["halt", "wipe", "kafka", "resume"])
@example(["slow", "halt", "slow", "redis", "halt"])
@example(["slow", "halt", "look 0", "slow", "redis", "halt", "slow", "halt"])
def test_all_agree_at_the_end_and_on_nothing_older_than_what_kafka_acknowledged(
    there: tuple[Any, Ledger], steps: list[str]
):
    """What Redis alone had may be lost with it; a write that nobody waited for may arrive late."""
    with broken_world(*there) as world:
        tried: list[GroupDecision] = []
        for step in steps:
            tried += world.do(step)
        world.settle()
        stands = world.mirror.read().in_force().get(KEY)
        assert world.mirror.read().unpublished == {}
        in_kafka = world.kafka.published(SETTINGS).standing.get(KEY)
        assert (None if in_kafka is None else in_kafka.decision) == stands
        agree(world, halts=stands is not None and stands.data is not None)
        if world.durable is not None:
            assert stands is not None
            assert stands == world.durable or tried.index(stands) > tried.index(world.durable)
