"""commit="completion": whatever is killed, wiped or restarted, nothing is lost and little runs twice."""

import os
import signal
from collections import Counter

import pytest
from confluent_kafka import Producer

from tests.delivery_checks import all_settled, audit, choose, delete_topic, end, json_of, twice, wait_until_settled
from tests.processes import Stack, eventually
from tests.project_process import children

COMPLETION = {"orders": {"commit": "completion"}}


@pytest.fixture
def completion(stack: Stack) -> Stack:
    choose(stack, COMPLETION)
    stack.make_topics("orders", partitions=2)
    return stack


def begun_twice(stack: Stack) -> list[str]:
    counts = Counter(run.coordinates for run in stack.runs() if run.outcome == "begun")
    return [where for where, times in counts.items() if times > 1]


@pytest.mark.slow
def test_bridge_worker_and_child_may_be_killed_and_only_what_was_running_runs_again(completion: Stack):
    stack = completion
    worker, bridge = stack.worker(wait=False), stack.bridge()
    values = [{"dead": True} if n % 100 == 50 else {"sleep": 0.02} for n in range(200)]
    stack.produce("orders", *values)
    eventually(lambda: len(stack.done()) > 20, 30)
    bridge.kill()
    stack.produce("orders", *values)
    bridge = stack.bridge(wait=False)
    worker.says(" ready.")
    eventually(lambda: len(stack.done()) > 100, 30)
    os.kill(children(worker)[0], signal.SIGKILL)
    eventually(lambda: len(stack.done()) > 180, 30)
    worker.kill()
    assert len(begun_twice(stack)) <= 1
    stack.worker()
    all_settled(stack, "orders", done=396, dead=4)
    # One child, then a worker of two.
    assert len(begun_twice(stack)) <= 3
    # Each is marked as soon as it is done: to be done twice it had to be killed in the millisecond between.
    assert len(twice(stack)) <= 1
    found = json_of(stack, "audit", stack.topic("orders"))
    assert bridge.metric("bridge_undone_deliveries_total") == 0
    assert found["clean"]


@pytest.mark.slow
def test_redis_wiped_with_hundreds_in_flight_loses_nothing_and_what_runs_again_is_said(completion: Stack):
    stack = completion
    bridge, worker = stack.bridge(), stack.worker()
    coordinates = stack.produce("orders", *({"sleep": 0.02} for _ in range(400)))
    eventually(lambda: len(stack.done()) > 60, 30)
    committed = stack.committed("orders")
    with stack.redis() as client:
        client.flushdb()
    done = len(stack.done())
    bridge.says("the ledger was wiped")
    wait_until_settled(stack, "orders")
    assert set(coordinates) == set(stack.done())
    # What was done above the committed offsets is run again, and no more: a second of work at most.
    assert len(twice(stack)) <= len(stack.done()) - 400 <= done - committed + 100
    found = audit(stack)
    assert found["unaccounted"] == found["handed"] == found["dead"] == 0
    # Nothing is known of what was committed before the wipe; all of it was done by then.
    assert found["done"] >= 400 - done
    assert worker.exit_code is None


def test_gaps_in_the_offsets_are_no_holes(calm: Stack):
    topic = calm.topic("orders")
    producer = Producer({"bootstrap.servers": calm.kafka, "transactional.id": topic})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, b"%d" % n)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    # Each transaction ends with a marker: 0 to 19, 20, aborted 21 to 40, 41, 42 to 61, 62; then one record.
    # The broker writes the last marker after it has answered.
    eventually(lambda: end(calm, "orders") == 63, 20)
    (last,) = calm.produce("orders", "last")
    assert last == f"{topic}-0-63"
    (line,) = all_settled(calm, "orders", done=41)["lines"]
    assert (line["gaps"], line["end"], line["committed"]) == (23, 64, 64)


@pytest.mark.slow
def test_a_topic_that_was_deleted_and_made_again_starts_with_clean_pages(stack: Stack):
    choose(stack, COMPLETION)
    stack.make_topics("orders")
    bridge = stack.bridge()
    stack.worker()
    stack.produce("orders", *range(30))
    all_settled(stack, "orders", done=30)
    bridge.terminate()
    delete_topic(stack, "orders")
    eventually(lambda: not stack.has_topic("orders"), 20)
    stack.make_topics("orders")
    again = stack.produce("orders", *range(10))
    assert again[0].endswith("-0-0")
    stack.bridge()
    eventually(lambda: len(stack.done()) == 40, 30, "the new topic's records are run")
    all_settled(stack, "orders", done=10)
