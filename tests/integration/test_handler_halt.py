"""A halted handler or key waits, counted and kept, until somebody resumes it; all else of the topic goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from celery import Celery

from bridge.formats.halt_scope import HaltScope
from bridge.handler_routes import Handler, Routes
from bridge.operator_actions.handler_halt import halt_handlers, read_handler_halts, resume_handlers
from bridge.settings import EnvironmentSettings, FileSettings, Settings
from tests.delivery_checks import choose, command, json_of
from tests.processes import Stack, eventually

WHY = "it books twice"
TOPICS = ("orders", "many", "found", "limited", "slow", "odd", "keyed", "keyed_batches", "line", "blocking", "steps")


@contextmanager
def here(stack: Stack) -> Iterator[tuple[Celery, Settings, Routes]]:
    """The settings of a stack, in this process: a command of its own takes seconds to start."""
    made = EnvironmentSettings(BRIDGE_GROUP=stack.environ["BRIDGE_GROUP"])
    handlers = {"odd": "odd", "odd_too": "odd", "many": "many", "keyed_batches": "keyed_batches", "orders": "orders"}
    routes = Routes({name: Handler(name, (stack.topic(of),), "q", 1, 0.0) for name, of in handlers.items()})
    transport = "lossless.transport:Transport"
    with Celery("here", broker=stack.broker, broker_transport=transport, set_as_current=False) as app:
        yield app, Settings(FileSettings(), made, stack.broker, {"bootstrap.servers": stack.kafka}), routes


def halt(stack: Stack, topic: str, handler: str, key: str | None = None) -> None:
    with here(stack) as around:
        halt_handlers(*around, [HaltScope(stack.topic(topic), handler, key)], WHY, "ann")


def resume(stack: Stack, topic: str, handler: str, key: str | None = None) -> None:
    with here(stack) as around:
        resume_handlers(*around, [HaltScope(stack.topic(topic), handler, key)], "", "bob")


def held(stack: Stack) -> list[tuple[str, str | None, int]]:
    """What `bridge status` says that it waits: handler, key, deliveries."""
    return [
        (each["handler"], each["key"], each["waiting_deliveries"])
        for each in json_of(stack, "status")["halted_handlers"]
    ]


def produce(stack: Stack, topic: str, numbers: range) -> None:
    """Records with the keys a, b and c in turn."""
    for number in numbers:
        stack.produce(topic, {"id": number}, key="abc"[number % 3].encode())


def done_by_key(stack: Stack, handler: str, key: str) -> list[int]:
    """The numbers of what a handler has done of a key, in the order in which it ended."""
    return [run.value["id"] for run in stack.runs(handler) if run.outcome == "done" and run.key == key.encode()]


#: It waits for a dozen processes that start one after another, and the first test of a run for Kafka too.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("commit", ["handoff", "completion"])
def test_a_halted_handler_waits_and_the_others_of_its_topic_go_on_through_restarts(stack: Stack, commit: str):
    choose(stack, {"odd": {"commit": commit}})
    stack.make_topics(*TOPICS)
    topic = stack.topic("odd")
    bridge, worker = stack.bridge(), stack.worker()
    answer = json_of(stack, "halt", topic, "--handler", "odd_too", "--why", WHY, "--by", "ann")
    (halted,) = answer["handlers"]
    assert (halted["halted"], halted["handler"], halted["key"], answer["topics"]) == (True, "odd_too", None, {})
    stack.produce("odd", *({"id": number} for number in range(30)))
    eventually(lambda: len(stack.done("odd")) == 30, 20, "the other handler goes on")
    eventually(lambda: (bridge.metric("bridge_held_messages", handler="odd_too") or 0) > 0, 10)
    eventually(lambda: held(stack) == [("odd_too", None, 30)], 20)
    assert bridge.metric("bridge_handler_halted", topic=topic, handler="odd_too") == 1
    assert bridge.metric("bridge_handler_halted", topic=topic, handler="odd") == 0
    (problem,) = [each for each in json_of(stack, "status")["problems"] if "is halted" in each]
    assert f"`bridge resume {topic} --handler odd_too`" in problem
    assert "30 deliveries" in problem

    for process in (bridge, worker):
        process.kill()
    bridge, worker = stack.bridge(), stack.worker()
    stack.produce("odd", *({"id": number} for number in range(30, 40)))
    eventually(lambda: len(stack.done("odd")) == 40, 30)
    eventually(lambda: held(stack) == [("odd_too", None, 40)], 20)
    assert stack.runs("odd_too") == []

    assert "is resumed" in command(stack, "resume", topic, "--handler", "odd_too")
    eventually(lambda: len(stack.done("odd_too")) == 40, 30)
    assert {run.attempt for run in stack.runs("odd_too")} == {1}
    assert len(stack.runs("odd_too")) == 2 * 40, "each ran once"
    eventually(lambda: stack.committed("odd") == 40, 20)
    # Workers go on at once, and a bridge sees it at its next look.
    eventually(lambda: bridge.metric("bridge_held_messages", handler="odd_too") == 0, 20)
    assert "is not halted" in command(stack, "resume", topic, "--handler", "odd_too")


def test_what_a_handler_has_queued_when_it_is_halted_waits_without_an_attempt(stack: Stack):
    choose(stack, {"odd": {"commit": "completion"}})
    stack.make_topics(*TOPICS)
    bridge = stack.bridge()
    stack.produce("odd", *({"id": number} for number in range(50)))
    eventually(lambda: (bridge.metric("bridge_deliveries_handed_off_total", handler="odd_too") or 0) >= 50, 20)
    halt(stack, "odd", "odd_too")
    stack.worker()
    eventually(lambda: len(stack.done("odd")) == 50, 20)
    eventually(lambda: held(stack) == [("odd_too", None, 50)], 20)
    assert stack.runs("odd_too") == []
    resume(stack, "odd", "odd_too")
    eventually(lambda: len(stack.done("odd_too")) == 50, 20)
    assert {run.attempt for run in stack.runs("odd_too")} == {1}


def test_a_topic_whose_only_handler_is_halted_waits_in_kafka(stack: Stack):
    choose(stack, {"orders": {}})
    stack.make_topics(*TOPICS)
    halt(stack, "orders", "orders")
    bridge, _ = stack.bridge(), stack.worker()
    stack.produce("orders", *({"id": number} for number in range(20)))
    topic = stack.topic("orders")
    eventually(lambda: bridge.metric("bridge_partition_paused", topic=topic, reason="halted") == 1, 10)
    assert (stack.done("orders"), stack.waiting()) == ([], 0)
    resume(stack, "orders", "orders")
    eventually(lambda: len(stack.done("orders")) == 20, 20)


@pytest.mark.parametrize(
    ("topic", "settings"),
    [("many", {}), ("many", {"commit": "completion"}), ("keyed_batches", {"commit": "completion", "order": "key"})],
)
def test_the_records_of_a_halted_key_wait_in_their_order_and_all_other_keys_go_on(
    stack: Stack, topic: str, settings: dict[str, Any]
):
    choose(stack, {topic: settings})
    stack.make_topics(*TOPICS)
    produce(stack, topic, range(30))
    halt(stack, topic, topic, "b")
    bridge, worker = stack.bridge(), stack.worker("-c", "1")
    eventually(lambda: len(stack.done(topic)) == 20, 30, "the other keys go on")
    ordered = settings.get("order") is not None
    # Of an ordered topic only the first of a key is handed off.
    eventually(lambda: held(stack)[0][2] >= (1 if ordered else 10), 20)
    bridge.kill()
    worker.kill()
    bridge, worker = stack.bridge(), stack.worker("-c", "1")
    produce(stack, topic, range(30, 60))
    eventually(lambda: len(stack.done(topic)) == 40, 30)
    assert done_by_key(stack, topic, "b") == []
    assert bridge.metric("bridge_keys_halted", handler=topic) == 1
    coordinates = f"{stack.topic(topic)}-0-1"
    (found,) = json_of(stack, "find", coordinates)["deliveries"]
    assert (found["fate"], found["halted"]["what"], found["halted"]["why"]) == ("handed", "key", WHY)

    resume(stack, topic, topic, "b")
    eventually(lambda: len(stack.done(topic)) == 60, 30)
    for key in "abc" if ordered else "":
        numbers = done_by_key(stack, topic, key)
        assert numbers == sorted(numbers)
    assert len({*stack.done(topic)}) == len(stack.done(topic)) == 60
    assert {run.attempt for run in stack.runs(topic)} == {1}
    with here(stack) as (_, chosen, _):
        assert read_handler_halts(chosen) == []


def test_a_halted_key_stays_halted_and_its_records_are_kept_over_a_wiped_redis(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics(*TOPICS)
    bridge, _ = stack.bridge(), stack.worker()
    halt(stack, "many", "many", "b")
    produce(stack, "many", range(30))
    eventually(lambda: len(stack.done("many")) == 20, 30)
    with redis.Redis.from_url(stack.broker) as client:
        client.flushdb()
    eventually(lambda: held(stack) == [("many", "b", 10)], 60, "they are handed off again, and held")
    assert done_by_key(stack, "many", "b") == []
    assert bridge.metric("bridge_keys_halted", handler="many") == 1
    command(stack, "resume", "--all")
    eventually(lambda: len(done_by_key(stack, "many", "b")) == 10, 30)


def test_what_cannot_be_halted_is_refused_with_the_reason(stack: Stack):
    choose(stack, {"line": {"commit": "completion", "order": "partition"}})
    stack.make_topics(*TOPICS)
    line, why = stack.topic("line"), ("--why", "x")
    assert "--key is one key of a handler" in command(stack, "halt", line, "--key", "1", *why, code=1)
    text = command(stack, "halt", line, "--handler", "nobody", *why, code=1)
    assert f"'nobody' is no handler of topic '{line}'. Its handlers: line." in text
    text = command(stack, "halt", line, "--handler", "line", "--key", "1", *why, code=1)
    assert "ordered by partition: a halted key would stop all that is behind it" in text
    assert f"Halt its handler instead: bridge halt {line} --handler line" in text
