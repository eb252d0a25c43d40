"""Async deliveries side by side in one process: as many at once as was said, and each with an end of its own."""

import time
from collections import Counter

import pytest

from tests.delivery_checks import all_settled, choose, in_order
from tests.processes import Run, Stack, eventually


@pytest.fixture
def side(stack: Stack) -> Stack:
    choose(stack, {name: {"commit": "completion"} for name in ("beside", "waits")}, lost_pauses=[0.2, 0.2])
    stack.environ["HANDLERS"] = "tests.handlers.side_by_side"
    stack.make_topics("beside", "waits")
    return stack


def most_at_once(runs: list[Run]) -> int:
    running = most = 0
    for run in sorted(runs, key=lambda run: run.time):
        running += 1 if run.outcome == "begun" else -1
        most = max(most, running)
    return most


def begun(stack: Stack, handler: str) -> Counter[str]:
    return Counter(run.coordinates for run in stack.runs(handler) if run.outcome == "begun")


def test_one_process_runs_many_at_once_and_a_slow_one_holds_back_no_mark(side: Stack):
    placed = side.produce("beside", {"seconds": 1.8}, *[{"seconds": 0.2}] * 99)
    side.bridge()
    eventually(lambda: side.waiting() == 1, 20, "one batch")
    side.worker("-c", "1")
    all_settled(side, "beside", done=100)
    runs = side.runs("beside")
    assert 40 <= most_at_once(runs) <= 50
    assert begun(side, "beside") == Counter(placed)
    slow = next(run.time for run in runs if run.outcome == "done" and run.coordinates == placed[0])
    assert max(run.time for run in runs if run.outcome == "done" and run.coordinates != placed[0]) < slow
    eventually(lambda: not side.held_ids() and not side.waiting(), 10)


def test_the_order_of_a_key_holds_while_keys_run_beside_each_other(side: Stack):
    choose(side, {"beside": {"commit": "completion", "order": "key"}})
    side.environ["HANDLERS"] = "tests.handlers.side_by_side"
    for number in range(5):
        for key in range(10):
            side.produce("beside", {"seconds": 0.05, "n": number}, key=f"key {key}")
    side.bridge()
    side.worker("-c", "1")
    all_settled(side, "beside", done=50)
    in_order(side, "beside")
    assert most_at_once(side.runs("beside")) > 1


@pytest.mark.slow
def test_limits_end_the_message_that_overran_and_the_hard_one_alone_is_charged(side: Stack):
    placed = side.produce(
        "beside", *[{"seconds": 0.1}] * 10, {"seconds": 30}, {"seconds": 30, "deaf": True}, *[{"seconds": 0.1}] * 10
    )
    side.bridge()
    eventually(lambda: side.waiting() == 1, 20, "one batch")
    worker = side.worker("-c", "1")
    found = {letter.origin: letter.ours for letter in side.dead("beside", 2, 40)}
    assert {place: ours["reason"] for place, ours in found.items()} == {placed[10]: "exhausted", placed[11]: "poison"}
    assert found[placed[10]]["error_class"].endswith("SoftTimeLimitExceeded")
    all_settled(side, "beside", done=20, dead=2)
    assert begun(side, "beside") == Counter({**dict.fromkeys(placed, 1), placed[11]: 3})
    worker.says("overran its hard time limit of 4 s")


def test_a_killed_process_repeats_what_ran_and_nothing_else(side: Stack):
    placed = side.produce("beside", *[{"seconds": 0.1}] * 30, {"seconds": 0, "kills": True}, *[{"seconds": 1.5}] * 9)
    side.bridge()
    eventually(lambda: side.waiting() == 1, 20, "one batch")
    side.worker("-c", "2")
    (letter,) = side.dead("beside", 1, 60)
    assert (letter.origin, letter.ours["reason"]) == (placed[30], "poison")
    all_settled(side, "beside", done=39, dead=1)
    # Three runs alone are charged to it; the one before, beside nine others, to nobody.
    runs = begun(side, "beside")
    assert {place for place, count in runs.items() if count > 1} == set(placed[30:])
    assert runs.pop(placed[30]) <= 4
    assert max(runs.values()) == 2
    assert letter.ours["attempts_lost"] == "3"


@pytest.mark.slow
def test_with_an_automatic_concurrency_what_waits_runs_side_by_side(side: Stack):
    side.bridge()
    side.worker("-c", "1")
    side.produce("waits", *[{"seconds": 0.1}] * 600)
    before = time.monotonic()
    all_settled(side, "waits", done=600)
    # One by one it would take a minute. What is handed off ahead is for the number before.
    assert time.monotonic() - before < 45
    assert 8 <= most_at_once(side.runs("waits")) <= 100
