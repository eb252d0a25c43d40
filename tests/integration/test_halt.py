"""A topic that is halted is neither read nor run until somebody resumes it, and goes on from exactly there."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from bridge.errors import UnknownTopic
from bridge.formats.group_decision import append_decision, halt_key, make_decision_entry
from bridge.formats.halt_scope import HaltScope
from bridge.handler_routes import Handler, Routes
from bridge.kafka.control_topic import read_published_decisions
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, make_decision
from bridge.operator_actions import handler_halt
from bridge.operator_actions import topic_halt as commands
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from lossless.transport.message_gates import MessageGates
from tests.delivery_checks import choose, command, json_of
from tests.processes import Stack, eventually

WHY = "the bank books twice"


@pytest.fixture
def two(stack: Stack) -> Stack:
    """Two topics, each with a handler of its name."""
    choose(stack, {"orders": {"commit": "completion"}, "many": {"commit": "completion"}})
    stack.make_topics("orders", partitions=2)
    stack.make_topics("many", "found", "limited", "slow", "odd", "keyed", "line", "blocking", "steps", "payments")
    return stack


@contextmanager
def here(stack: Stack) -> Iterator[tuple[Celery, Settings, Routes]]:
    """The settings of a stack, in this process: a command of its own takes seconds to start."""
    kafka = {"bootstrap.servers": stack.kafka}
    made = EnvironmentSettings(BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"])
    names = ("orders", "many")
    routes = Routes({name: Handler(name, (stack.topic(name),), "q", 1, 0.0) for name in names})
    transport = "lossless.transport:Transport"
    with Celery("here", broker=stack.broker, broker_transport=transport, set_as_current=False) as app:
        yield app, Settings(FileSettings(), made, stack.broker, kafka), routes


def halt(stack: Stack, *topics: str, why: str = WHY, by: str = "ann@desk") -> dict[str, Any]:
    with here(stack) as (app, settings, routes):
        found: dict[str, Any] = commands.halt_topics(app, settings, routes, [*map(stack.topic, topics)], why, by)[
            "topics"
        ]
        return found


def resume(stack: Stack, *topics: str) -> dict[str, Any]:
    with here(stack) as (app, settings, routes):
        found: dict[str, Any] = commands.resume_topics(app, settings, routes, [*map(stack.topic, topics)], "", "bob")[
            "topics"
        ]
        return found


def wipe(stack: Stack) -> None:
    with redis.Redis.from_url(stack.broker) as client:
        client.flushdb()


def test_a_topic_is_halted_and_resumed_by_hand_without_any_bridge(two: Stack):
    orders = two.topic("orders")
    halted = json_of(two, "halt", orders, "--why", WHY, "--by", "ann@desk")["topics"][orders]
    assert (halted["halted"], halted["changed"], halted["why"], halted["by"]) == (True, True, WHY, "ann@desk")
    status = json_of(two, "status")
    assert {name: status["halted"][orders][name] for name in ("why", "by")} == {"why": WHY, "by": "ann@desk"}
    since = status["halted"][orders]["since"]
    (problem,) = [each for each in status["problems"] if "is halted" in each]
    assert WHY in problem
    assert f"`bridge resume {orders}`" in problem
    halt(two, "orders", why="and more")
    wipe(two)
    status = json_of(two, "status")
    assert (status["halted"][orders]["why"], status["halted"][orders]["since"]) == ("and more", since)
    assert json_of(two, "resume", "--all")["topics"][orders]["changed"]
    assert f"{orders} is not halted" in command(two, "resume", orders)


def test_a_topic_that_nobody_knows_is_refused_with_those_that_there_are(two: Stack):
    text = command(two, "halt", "nowhere", "--why", "x", code=1)
    assert f"no handler names 'nowhere'. Topics: {two.topic('blocking')}, " in text
    with pytest.raises(UnknownTopic):
        resume(two, "nowhere")


def test_a_halted_topic_is_not_read_and_others_are_and_it_goes_on_from_exactly_there(two: Stack):
    halt(two, "orders")
    bridge = two.bridge()
    two.worker()
    orders = two.topic("orders")
    two.produce("orders", *({"id": n} for n in range(20)))
    two.produce("many", {"id": 0})
    eventually(lambda: two.done("many"), 20)
    assert two.done("orders") == []
    assert bridge.metric("bridge_halted", topic=orders) == 1
    assert bridge.metric("bridge_halted", topic=two.topic("many")) == 0
    assert 0 <= time.time() - (bridge.metric("bridge_halted_since_seconds", topic=orders) or 0) < 60
    assert bridge.metric("bridge_partition_paused", topic=orders, reason="halted") == 2
    status, page = bridge.get("/readyz")
    assert status == 200
    assert f"topic '{orders}' is halted, since " in page
    assert WHY in page
    assert bridge.count(f"topic '{orders}' is halted, since ") == 1
    assert bridge.count(f"by ann@desk: {WHY}.") == 1

    wipe(two)
    with closing(Ledger(two.broker, "", two.environ["BRIDGE_GROUP"])) as ledger:
        eventually(lambda: DecisionMirror(ledger).read().in_force(), 10, "the bridge puts it back")
    resume(two, "orders")
    eventually(lambda: len(two.done("orders")) == 20, 20)
    eventually(lambda: bridge.metric("bridge_halted", topic=orders) == 0, 10, "the bridge shows the resumption")
    bridge.says(f"topic '{orders}' is consumed again")


def test_a_running_bridge_hears_within_a_second_and_a_new_one_at_once(two: Stack):
    bridge = two.bridge()
    halt(two, "orders")
    eventually(lambda: bridge.metric("bridge_halted", topic=two.topic("orders")) == 1, 3)
    two.produce("orders", {"id": 1})
    second = two.bridge()
    bridge.kill()
    eventually(lambda: second.metric("bridge_partition_paused", topic=two.topic("orders")) == 2, 20)
    assert second.metric("bridge_records_consumed_total", topic=two.topic("orders")) == 0


@pytest.mark.slow
def test_a_bridge_of_which_all_topics_are_halted_is_not_ready(stack: Stack):
    stack.make_topics("orders")
    bridge = stack.bridge()
    halt(stack, "orders")
    eventually(lambda: bridge.get("/readyz")[0] == 503, 5)
    assert WHY in bridge.get("/readyz")[1]
    assert bridge.metric("bridge_ready") == 0
    resume(stack, "orders")
    eventually(bridge.ready, 5)


@pytest.mark.slow
def test_a_bridge_of_which_all_handlers_are_halted_is_not_ready(stack: Stack):
    stack.make_topics("orders")
    bridge, topic, name = stack.bridge(), stack.topic("orders"), "tests.handlers.simple.work"
    whole, key = HaltScope(topic, name), HaltScope(topic, name, "b")
    routes = Routes({name: Handler(name, (topic,), "q", 1, 0.0)})
    with here(stack) as (app, settings, _):
        handler_halt.halt_handlers(app, settings, routes, [key], WHY, "ann@desk")
        eventually(lambda: bridge.metric("bridge_keys_halted") == 1, 5)
        assert bridge.get("/readyz") == (200, "ok\n")
        handler_halt.halt_handlers(app, settings, routes, [whole], WHY, "ann@desk")
        eventually(lambda: bridge.get("/readyz")[0] == 503, 5)
        (line,) = bridge.get("/readyz")[1].splitlines()
        assert f"handler '{name}' of topic '{topic}' is halted, since " in line
        assert f"by ann@desk: {WHY}; `bridge resume {topic} --handler {name}` goes on." in line
        eventually(lambda: bridge.metric("bridge_ready") == 0, 5)
        handler_halt.resume_handlers(app, settings, routes, [whole], "", "bob")
    eventually(bridge.ready, 5)


def begun(stack: Stack, handler: str = "orders") -> list[str]:
    """The coordinates of each run, in order, also of those that asked to stop."""
    return [run.coordinates for run in stack.runs(handler) if run.outcome == "begun"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "leave"])
def test_a_handler_halts_its_topic_and_its_message_runs_first_after_hundreds_waited_unspent(
    stack: Stack, how: str, tmp_path: Path
):
    # A busy machine may keep a worker from saying that it lives for longer than the two seconds of other tests.
    patient = {"dead_after": 8}
    choose(
        stack,
        {"orders": {"commit": "completion"}, "many": {"commit": "completion"}},
        broker_transport_options=patient,
    )
    stack.make_topics("orders", "many", "found", "limited", "slow", "odd", "keyed", "line", "blocking")
    stack.make_topics("steps", "payments")
    mended, orders = tmp_path / "mended", stack.topic("orders")
    bridge = stack.bridge()
    stack.produce("orders", {"id": 0}, {how: str(mended)}, *({"linger": str(mended)} for _ in range(200)))
    eventually(lambda: bridge.metric("bridge_queue_messages") >= 202, 20, "all are handed off")
    one, other = stack.worker("-c", "1"), stack.worker("-c", "2")
    eventually(lambda: bridge.metric("bridge_halted", topic=orders) == 1, 20)
    stack.produce("many", {"id": 0})
    eventually(lambda: stack.done("many"), 20, "other topics go on")
    # What was begun before the halt was decided ends; the one that asked for the halt has no end.
    eventually(lambda: len(begun(stack)) == len(stack.done("orders")) + 1, 20, "nothing of the topic runs")
    ran = begun(stack)
    assert len(ran) < 200
    with here(stack) as (_, settings, _), closing(Ledger(stack.broker, "", settings.group)) as ledger:
        halted = commands.make_halt_view(DecisionMirror(ledger).read().in_force()[halt_key(orders)])
    assert (halted["handler"], halted["record"]) == ("orders", f"{orders}-0-1")
    assert "orders on " in halted["by"]
    assert ("the bank books twice" if how == "stop" else "BankShut: as it says") in halted["why"]
    assert sum("is halted by" in line for worker in (one, other) for line in worker.text.splitlines() if "CRIT" in line)

    for process in (bridge, one, other):
        process.kill()
    bridge, _ = stack.bridge(), stack.worker("-c", "1")
    stack.produce("many", {"id": 1})
    eventually(lambda: len(stack.done("many")) == 2, 20, "other topics go on after a restart")
    assert begun(stack) == ran

    mended.touch()
    resume(stack, "orders")
    eventually(lambda: len(stack.done("orders")) == 202, 60)
    after = begun(stack)[len(ran) :]
    offsets = [int(where.rpartition("-")[2]) for where in after]
    assert offsets[0] == 1
    # Each of those that had not begun runs once; two killed workers put back what they held in no order between them.
    assert sorted(offsets[1:]) == sorted({*range(2, 202)} - {int(where.rpartition("-")[2]) for where in ran})
    assert {run.attempt for run in stack.runs("orders") if run.outcome == "done"} <= {1, 2}
    assert [run.coordinates for run in stack.runs("orders") if run.attempt == 2 and run.outcome == "done"] == [
        f"{orders}-0-1"
    ]
    eventually(lambda: bridge.metric("bridge_halted", topic=orders) == 0, 10, "the bridge shows the resumption")


def gates_shut(stack: Stack) -> dict[str, str]:
    with redis.Redis.from_url(stack.broker) as client:
        return MessageGates(client).shut_names()


@pytest.mark.slow
def test_a_halt_that_only_kafka_or_only_redis_has_is_brought_to_the_other_and_to_the_gate(two: Stack):
    """What is left by who died in between, or could not reach one of the two."""
    bridge = two.bridge()
    orders, many = two.topic("orders"), two.topic("many")
    with here(two) as (_, settings, _), closing(Ledger(two.broker, "", settings.group)) as ledger:
        mirror = DecisionMirror(ledger)
        in_kafka = make_decision(settings, None, halt_key(orders), {}, "ann", WHY).decision
        in_redis = append_decision(halt_key(many), None, make_decision_entry({}, "bob", 0.0, WHY))
        mirror.want(in_redis)
        both = {halt_key(orders): in_kafka, halt_key(many): in_redis}
        eventually(lambda: mirror.read().in_force() == both and not mirror.read().unpublished, 20)
        assert {key: each.decision for key, each in read_published_decisions(settings).standing.items()} == both
    eventually(lambda: len(gates_shut(two)) == 2, 10)
    with redis.Redis.from_url(two.broker) as client:
        MessageGates(client).open(next(iter(gates_shut(two))))
    eventually(lambda: len(gates_shut(two)) == 2, 10, "what somebody opened past the halt is shut again")
    resume(two, "orders", "many")
    assert gates_shut(two) == {}
    eventually(lambda: bridge.metric("bridge_halted") == 0, 5)


@pytest.mark.slow
def test_a_wiped_redis_loses_neither_the_halt_nor_a_message(two: Stack, tmp_path: Path):
    mended = tmp_path / "mended"
    two.bridge()
    two.worker()
    two.produce("orders", *({"stop": str(mended)} for _ in range(20)))
    eventually(lambda: gates_shut(two), 20)
    two.produce("many", {"id": 0})
    eventually(lambda: two.done("many"), 20)
    ran = len(begun(two))
    wipe(two)
    eventually(lambda: gates_shut(two), 10, "the bridge shuts the gate again")
    two.produce("many", {"id": 1})
    # The first may be read again, and run again: it was perhaps not committed yet.
    eventually(lambda: len(set(two.done("many"))) == 2, 20)
    assert len(begun(two)) == ran
    assert two.done("orders") == []
    mended.touch()
    resume(two, "orders")
    eventually(lambda: len(set(two.done("orders"))) == 20, 30)
