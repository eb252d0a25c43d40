"""Many deliveries in one Celery task, each with a fate of its own."""

import json
import re

import pytest

from bridge.records.header import Contents
from tests.processes import Stack, eventually
from tests.promises import all_settled, choose, twice


def worker_log(stack: Stack) -> str:
    return (stack.folder / "worker-0.log").read_text()


def test_one_failing_message_never_repeats_its_neighbours_and_failures_go_together(calm: Stack):
    bad = {50, 51, 150}
    for n in range(400):
        value = {"fail": 2} if n in bad else {"dead": True} if n == 200 else n
        calm.producer.produce(calm.topic("many"), json.dumps(value).encode())
    assert calm.producer.flush(30) == 0
    all_settled(calm, "many", done=399, dead=1)
    assert twice(calm, "many") == {}
    begun = [run.coordinates for run in calm.runs("many") if run.outcome == "begun"]
    assert len(begun) == 400 + 2 * len(bad)
    log = worker_log(calm)
    # Those that failed in one batch are retried in one message.
    again = re.findall(r"Task many\[calm.many-0-50\.\.\d+:many\] received", log)
    assert len(again) == 2


def test_a_message_carries_up_to_the_size_of_a_batch_and_its_label_says_which(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    for n in range(450):
        stack.producer.produce(stack.topic("many"), b"%d" % n)
    assert stack.producer.flush(30) == 0
    stack.bridge()
    topic = stack.topic("many")
    eventually(lambda: stack.waiting() >= 3, 20)
    with stack.redis() as client:
        found = [json.loads(raw)["headers"] for raw in reversed(client.lrange(stack.queue, 0, -1))]
    shown = {headers["argsrepr"]: headers["id"] for headers in found}
    assert shown[f"({topic}-0-0..199, 200 messages)"] == f"{topic}-0-0..199:many"
    carried = [contents.offsets for headers in found if (contents := Contents.of(headers)) is not None]
    assert sorted(offset for offsets in carried for offset in offsets) == list(range(450))
    assert max(map(len, carried)) == 200


def test_a_lone_message_does_not_wait_for_others(calm: Stack):
    (placed,) = calm.produce("many", 1)
    eventually(lambda: placed in calm.done("many"), 5)


@pytest.mark.slow
def test_a_process_that_dies_repeats_no_neighbour_and_the_message_that_kills_is_found(stack: Stack):
    choose(stack, {"many": {"commit": "completion"}})
    stack.make_topics("many")
    coordinates = stack.produce("many", *[{"sleep": 0.02}] * 30, {"kill": 9}, *range(30))
    stack.bridge()
    eventually(lambda: stack.waiting() >= 1, 20)
    stack.worker()
    (letter,) = stack.dead("many", 1, 60)
    assert letter.origin == coordinates[30]
    assert letter.ours["reason"] == "poison"
    all_settled(stack, "many", done=60, dead=1)
    begun = [run.coordinates for run in stack.runs("many") if run.outcome == "begun"]
    assert begun.count(coordinates[30]) == 1 + 3  # once among the others, then alone until it is held to be poison
    # Marks wait a few milliseconds for others: only what was done in the last of them before the process died.
    assert set(twice(stack, "many")) <= {coordinates[29]}
    assert not set(coordinates) - set(stack.done("many")) - {letter.origin}


def test_the_rest_of_a_batch_goes_back_when_its_time_is_over(calm: Stack):
    placed = calm.produce("slow", *({"sleep": 0.25} for _ in range(16)))
    eventually(lambda: set(placed) <= set(calm.done("slow")), 40)
    all_settled(calm, "slow", done=16)
    assert twice(calm, "slow") == {}
    back = [int(count) for count in re.findall(r"Task slow\[.* (\d+) put back'", worker_log(calm))]
    assert len(back) >= 3
    assert back == sorted(back, reverse=True)
