"""A limit that all workers share: exact under kills and a restart of Redis, and fair between keys."""

import time

import pytest

from tests.delivery_checks import all_settled, audit, choose, command, in_order, json_of, twice
from tests.processes import Run, Stack, eventually
from tests.servers.redis import RedisServer

#: Workers start one after another, and a busy machine starts each in ten seconds.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def bank(mortal_stack: Stack) -> Stack:
    return limited(mortal_stack)


def limited(stack: Stack, **topic: str) -> Stack:
    choose(stack, {"orders": {"commit": "completion", **topic}}, lost_pauses=[0.2, 0.2])
    stack.environ["HANDLERS"] = "tests.handlers.shared_limit"
    stack.make_topics("orders", partitions=4)
    return stack


def begun(stack: Stack) -> list[Run]:
    return sorted((run for run in stack.runs("charge") if run.outcome == "begun"), key=lambda run: run.time)


def most_at_once(stack: Stack) -> int:
    steps = sorted((run.time, 1 if run.outcome == "begun" else -1) for run in stack.runs("charge"))
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def test_its_rate_is_exact_and_a_quiet_key_does_not_wait_for_a_noisy_one(stack: Stack):
    stack.environ["TEST_RATE"] = "5"
    limited(stack)
    stack.produce("orders", *({"n": number} for number in range(200)), key="noisy")
    stack.bridge()
    for _ in range(2):
        stack.worker("-c", "2", wait=False)
    eventually(lambda: len(begun(stack)) > 25, 60)
    first = begun(stack)[25].time
    quiet = [stack.produce("orders", {"quiet": number}, key=f"quiet {number}", partition=1)[0] for number in range(3)]
    produced = time.time()
    eventually(lambda: set(quiet) <= {run.coordinates for run in begun(stack)}, 30)
    # The noisy key has 30 s of starts in front.
    assert max(run.time for run in begun(stack) if run.coordinates in quiet) - produced < 15
    eventually(lambda: time.time() > first + 21, 60)
    started = sum(first < run.time <= first + 20 for run in begun(stack))
    assert started == pytest.approx(100, rel=0.02, abs=2)
    limit = json_of(stack, "status")["limits"]["bank"]
    assert (limit["per_second"], limit["burst"], limit["handlers"]) == (5, 20, ["charge"])
    assert limit["waiting"] > 10
    command(stack, "policy", "set", "limit:bank", "per_second=200", "--why", "the bank allows it")
    all_settled(stack, "orders", done=203)
    assert twice(stack, "charge") == {}


@pytest.mark.slow
def test_killed_workers_and_a_restarted_redis_leave_it_exact_and_no_lease_behind(
    bank: Stack, mortal_redis: RedisServer
):
    bank.environ["TEST_AT_ONCE"] = "3"
    placed = bank.produce("orders", *({"takes": 0.3, "n": number} for number in range(60)))
    bank.bridge()
    workers = [bank.worker("-c", "2", wait=False) for _ in range(3)]
    eventually(lambda: len(begun(bank)) >= 10, 60)
    workers[0].kill()
    eventually(lambda: len(begun(bank)) >= 20, 60)
    mortal_redis.stop()
    mortal_redis.start()
    workers[1].kill()
    bank.worker("-c", "2", wait=False)
    all_settled(bank, "orders", done=60, within=120)
    assert {run.coordinates for run in begun(bank)} == set(placed)
    eventually(lambda: json_of(bank, "status")["limits"]["bank"]["running"] == 0, 40)
    assert json_of(bank, "status")["limits"]["bank"]["concurrency"] == 3


def test_waiting_keeps_the_order_of_a_key(stack: Stack):
    stack.environ["TEST_RATE"] = "30"
    limited(stack, order="key")
    for key in range(4):
        stack.produce("orders", *({"n": number, "takes": 0} for number in range(40)), key=f"key {key}")
    stack.bridge()
    stack.worker("-c", "4")
    all_settled(stack, "orders", done=160)
    in_order(stack, "charge")
    assert audit(stack, "orders")["done"] == 160


def test_never_more_run_at_once_than_its_concurrency(stack: Stack):
    stack.environ["TEST_AT_ONCE"] = "2"
    limited(stack)
    stack.produce("orders", *({"takes": 0.2} for _ in range(40)))
    stack.bridge()
    stack.worker("-c", "4")
    all_settled(stack, "orders", done=40)
    assert most_at_once(stack) == 2
