"""What waits in retry and replay topics comes back when it is due, to the handler that failed, and to no other."""

import json
import time
from typing import Any

import pytest

from bridge.formats.delivery import Delivery, Message
from bridge.formats.retry_record import retry_headers
from bridge.partitions.retry_read_ahead import MOST
from tests.delivery_checks import all_settled, choose, in_order, twice
from tests.processes import Run, Stack, eventually

COMPLETION = {"commit": "completion"}
#: Each failure of tests/handlers/fates.py waits in a retry topic.
PARKS = {"kafka_park_after": 0.2, "kafka_retry_tiers": (1,)}


def park(stack: Stack, topic: str, origin: str, handler: str, due: float = 0.0, **options: Any) -> None:
    """Write a record of a retry (or replay) topic by hand, as a worker would."""
    source, partition, offset = origin.rsplit("-", 2)
    message = Message(source, int(partition), int(offset), headers=(("trace", b"t"),), timestamp=1)
    group, flush = options.pop("group", stack.environ["BRIDGE_GROUP"]), options.pop("flush", True)
    value = options.pop("value", b'{"n": 1}')
    delivery = Delivery(message, handler, **{"number": 1, "runs": 1, **options})
    written = retry_headers(delivery, group, due=int(due * 1000))
    stack.producer.produce(stack.topic(topic), value, b"k", 0, headers=written)
    assert not flush or stack.producer.flush(30) == 0


def runs(stack: Stack, handler: str, origin: str) -> list[Run]:
    return [run for run in stack.runs(handler, origin) if run.outcome == "done"]


def test_a_parked_record_runs_when_it_is_due_and_only_for_the_handler_that_it_names(stack: Stack):
    choose(stack, {"odd": COMPLETION})
    stack.make_topics("odd", "odd.retry.1s", "odd.replay")
    stack.worker(wait=False)
    stack.bridge()
    due = time.time() + 2
    park(stack, "odd.retry.1s", stack.topic("odd") + "-0-7", "odd_too", due)
    park(stack, "odd.retry.1s", stack.topic("odd") + "-0-8", "odd_too", due + 1)
    park(stack, "odd.replay", stack.topic("odd") + "-0-9", "odd")
    eventually(lambda: len(stack.done()) == 3, 20)
    (first,), (second,) = (runs(stack, "odd_too", stack.topic("odd") + f"-0-{n}") for n in (7, 8))
    assert due <= first.time < due + 1
    assert due + 1 <= second.time < due + 2
    assert (first.attempt, first.headers, first.key) == (2, (("trace", b"t"),), b"k")
    assert {run.handler for run in stack.runs()} == {"odd_too", "odd"}
    eventually(lambda: stack.committed("odd.retry.1s") == 2, 10, "what is done of a retry topic is committed")


@pytest.mark.slow
def test_what_a_worker_parked_whose_clock_is_a_day_ahead_holds_back_nobody_elses_retries(stack: Stack):
    choose(stack, {"odd": COMPLETION})
    stack.make_topics("odd")
    stack.make_topics("odd.retry.3s", config={"message.timestamp.type": "LogAppendTime"})
    stack.worker(wait=False)
    bridge = stack.bridge()
    now = time.time()
    for offset in range(120):
        park(stack, "odd.retry.3s", stack.topic("odd") + f"-0-{offset}", "odd", now + 86_403)
    park(stack, "odd.retry.3s", stack.topic("odd") + "-0-999", "odd", now + 3)
    eventually(lambda: len(stack.done("odd")) == 121, 20)
    assert min(run.time for run in stack.runs("odd")) >= now + 3
    bridge.says("the clock of the worker that parked it is wrong")


@pytest.mark.slow
def test_a_topic_that_is_made_while_the_bridge_runs_is_consumed_within_seconds_and_strangers_are_left_behind(
    stack: Stack,
):
    choose(stack, {})
    stack.make_topics("odd")
    stack.worker(wait=False)
    bridge = stack.bridge()
    stack.make_topics("odd.retry.7s")
    stack.produce("odd.retry.7s", b"of another producer")
    park(stack, "odd.retry.7s", stack.topic("odd") + "-0-6", "odd", group="another")
    park(stack, "odd.retry.7s", stack.topic("odd") + "-0-7", "odd", time.time())
    park(stack, "odd.retry.7s", stack.topic("odd") + "-0-7", "odd", time.time())
    eventually(lambda: len(stack.done("odd")) == 1, 25)
    eventually(lambda: stack.committed("odd.retry.7s") == 4, 10)
    bridge.says("left alone")
    assert twice(stack) == {}


@pytest.mark.slow
def test_what_is_parked_waits_through_a_kill_of_the_bridge_and_for_no_one_twice(stack: Stack):
    choose(stack, {"odd": COMPLETION})
    stack.make_topics("odd", "odd.retry.1s")
    stack.worker(wait=False)
    bridge = stack.bridge()
    due = time.time() + 4
    for offset in range(20):
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "odd", due if offset % 2 else 0)
    eventually(lambda: len(stack.done("odd")) == 10, 20)
    bridge.kill()
    stack.bridge()
    eventually(lambda: len(stack.done("odd")) == 20, 25)
    assert min(run.time for run in stack.runs("odd") if int(run.coordinates.rpartition("-")[2]) % 2) >= due
    eventually(lambda: stack.committed("odd.retry.1s") == 20, 10)
    assert twice(stack) == {}


@pytest.mark.slow
def test_a_parked_delivery_whose_handler_nobody_knows_waits_as_any_and_is_dead_then(stack: Stack):
    choose(stack, {}, kafka_unknown_for=1)
    stack.make_topics("odd", "odd.retry.1s")
    stack.worker(wait=False)
    stack.bridge()
    park(stack, "odd.retry.1s", stack.topic("odd") + "-0-7", "renamed", time.time())
    (letter,) = stack.dead("odd", 1, 40)
    assert (letter.ours["reason"], letter.ours["handler"], letter.origin) == (
        "unknown_handler",
        "renamed",
        stack.topic("odd") + "-0-7",
    )


@pytest.mark.slow
def test_of_twins_in_two_retry_topics_what_ends_first_ends_both(stack: Stack):
    """One delivery was written twice: the mark after the first was lost with Redis, and nobody looked far enough."""
    choose(stack, {"odd": COMPLETION}, **PARKS)
    stack.make_topics("odd", "odd.retry.1s", "odd.retry.2s")
    stack.worker()
    stack.bridge()
    values = {7: b'{"n": 1}', 8: b'{"odd": {"dead": true}}', 9: b'{"odd": {"fail": 2}}'}
    due = time.time()
    for offset, value in values.items():
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "odd", due, value=value)
        park(stack, "odd.retry.2s", stack.topic("odd") + f"-0-{offset}", "odd", due + 6, value=value)
    done, dead, failing = (stack.topic("odd") + f"-0-{offset}" for offset in values)
    eventually(lambda: {done, failing} <= set(stack.done("odd")), 30)
    eventually(lambda: stack.committed("odd.retry.2s") == 3, 30, "the others are over")
    assert len(runs(stack, "odd", done)) == 1
    assert [run.outcome for run in stack.runs("odd", dead)] == ["begun"]
    assert [letter.origin for letter in stack.dead("odd", 1)] == [dead]
    # It failed in its second run, was parked anew, and had its end before its twin was due.
    assert len(runs(stack, "odd", failing)) == 1
    assert twice(stack, "odd") == {}


@pytest.mark.slow
def test_records_of_a_handler_that_nobody_knows_go_out_slowly_and_hold_up_nobody_elses(stack: Stack):
    choose(stack, {"odd": COMPLETION})
    stack.make_topics("odd", "odd.retry.1s")
    stack.worker(wait=False)
    for offset in range(2 * MOST):
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "renamed", flush=False)
    for offset in range(20):
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "odd")
    stack.bridge()
    eventually(lambda: len(stack.done("odd")) == 20, 40)
    assert twice(stack, "odd") == {}


@pytest.mark.slow
def test_of_two_handlers_of_a_retry_topic_one_whose_worker_is_away_does_not_hold_up_the_other(stack: Stack):
    choose(stack, {"odd": COMPLETION})
    stack.environ["TEST_STILL_QUEUE"] = "still"
    stack.make_topics("odd", "odd.retry.1s")
    stack.worker("-Q", stack.environ["BRIDGE_GROUP"], wait=False)
    # More than a partition holds in memory, and behind them, in the same partition, those of the other handler.
    for offset in range(MOST + 500):
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "odd_too", flush=False)
    for offset in range(20):
        park(stack, "odd.retry.1s", stack.topic("odd") + f"-0-{offset}", "odd")
    stack.bridge()
    eventually(lambda: len(stack.done("odd")) == 20, 40)
    assert stack.done("odd_too") == []
    # And it goes on where it stood, with all that was passed over.
    stack.worker("-Q", "still")
    eventually(lambda: len(set(stack.done("odd_too"))) == MOST + 500, 90)
    eventually(lambda: stack.committed("odd.retry.1s") == MOST + 520, 30)
    assert twice(stack, "odd") == twice(stack, "odd_too") == {}


def test_what_fails_is_parked_comes_back_and_runs_only_for_the_handler_that_failed_also_after_a_kill(stack: Stack):
    choose(stack, {"odd": COMPLETION}, **PARKS)
    stack.make_topics("odd", partitions=2)
    stack.worker(wait=False)
    bridge = stack.bridge()
    placed = stack.produce("odd", *({"odd": {"fail": 2}} if n % 5 == 0 else n for n in range(40)))
    eventually(lambda: len(stack.records("odd.retry.1s")) >= 4, 30)
    bridge.kill()
    stack.bridge()
    eventually(lambda: set(placed) <= set(stack.done("odd")), 40)
    assert set(placed) == set(stack.done("odd_too"))
    assert twice(stack, "odd") == twice(stack, "odd_too") == {}
    attempts = {run.coordinates: run.attempt for run in stack.runs("odd") if run.outcome == "done"}
    assert [attempts[where] for where in placed] == [3 if n % 5 == 0 else 1 for n in range(40)]
    found = all_settled(stack, "odd", done=80)
    assert found["parked"] == 0
    eventually(lambda: stack.committed("odd.retry.1s") == 16, 10)


@pytest.mark.slow
def test_a_parked_message_holds_its_key_and_its_sequence_through_a_kill_of_the_bridge(stack: Stack):
    steps = [f"tests.handlers.fates.{name}" for name in ("first", "second", "third")]
    ordered = {**COMPLETION, "order": "key"}
    choose(stack, {"keyed_batches": ordered, "steps": {**ordered, "sequence": steps}}, **PARKS)
    stack.make_topics("keyed_batches", "steps")
    stack.worker(wait=False)
    bridge = stack.bridge()
    for n in range(120):
        value = json.dumps({"fail": 2} if n % 29 == 3 else {"n": n}).encode()
        stack.producer.produce(stack.topic("keyed_batches"), value, key=b"%d" % (n % 6))
    (failing, *others) = stack.produce("steps", {"second": {"fail": 2}}, *range(5), key=b"k")
    eventually(lambda: len(stack.records("keyed_batches.retry.1s")) >= 1, 30)
    bridge.kill()
    stack.bridge()
    all_settled(stack, "keyed_batches", done=120)
    in_order(stack, "keyed_batches")
    eventually(lambda: set(others) <= set(stack.done("third")), 40)
    runs_ = [(run.handler, run.coordinates) for run in stack.runs() if run.outcome == "done" and run.key == b"k"]
    assert runs_ == [(step, where) for where in (failing, *others) for step in ("first", "second", "third")]
    assert twice(stack) == dict.fromkeys((failing, *others), 3)
