"""The size of batches where nobody has said it: fast handlers in large ones, all else one by one."""

import os
import re
import signal
from functools import partial
from typing import Any

import pytest

from tests.delivery_checks import all_settled, choose, json_of, twice
from tests.processes import Served, Stack, eventually
from tests.project_process import children

COMPLETION = {"commit": "completion"}


@pytest.fixture
def auto(stack: Stack) -> Stack:
    choose(stack, {"found": COMPLETION, "limited": COMPLETION})
    stack.make_topics("found", "limited")
    return stack


def sizes(worker: Served, handler: str = "found") -> list[int]:
    """How many deliveries each message carried that a worker received."""
    found = re.findall(rf"Task {handler}\[[^\]]+?-(\d+)(?:\.\.(\d+))?:{handler}[^\]]*\] received", worker.text)
    return [int(last or first) - int(first) + 1 for first, last in found]


def in_use(stack: Stack, handler: str = "found") -> Any:
    (bridge,) = json_of(stack, "status")["bridges"].values()
    return bridge["batches"][handler]


@pytest.mark.slow
def test_a_backlog_of_a_fast_handler_goes_in_batches_soon_and_each_record_is_done_once(auto: Stack):
    worker = auto.worker()
    auto.produce("found", *range(3_000))
    auto.bridge()
    eventually(lambda: max(sizes(worker), default=0) >= 5, 60, "a batch, as large as the load of the machine lets it")
    all_settled(auto, "found", done=3_000, within=120)
    assert twice(auto, "found") == {}
    # Held back meanwhile: the queue was not filled with single records first.
    assert sizes(worker).count(1) < 1_000
    assert re.fullmatch(r"\d+: .+", str(in_use(auto)["size"]) + ": " + in_use(auto)["why"])


@pytest.mark.slow
def test_a_record_on_a_quiet_topic_goes_alone_under_its_own_name(auto: Stack):
    worker = auto.worker()
    auto.bridge()
    for number in range(5):
        (placed,) = auto.produce("found", number)
        eventually(partial(_done, auto, placed), 10)
    assert sizes(worker) == [1] * 5
    assert worker.count(f"{auto.topic('found')}-0-4:found] received") == 1


@pytest.mark.slow
def test_four_idle_processes_share_a_burst(auto: Stack):
    worker = auto.worker("-c", "4")
    auto.bridge()
    auto.produce("found", *[{"sleep": 0.005}] * 100)
    eventually(lambda: len(auto.done("found")) == 100, 20)
    before = len(auto.runs("found"))
    auto.produce("found", *[{"sleep": 0.005}] * 400)
    eventually(lambda: len(auto.done("found")) == 500, 20)
    burst = auto.runs("found")[before:]
    share = {pid: sum(run.pid == pid for run in burst) for pid in children(worker)}
    assert min(share.values()) >= 400 * 2 / 4 / 2, share
    assert 1 < max(sizes(worker)) <= 12


@pytest.mark.slow
def test_slow_and_limited_handlers_go_one_by_one(auto: Stack):
    worker = auto.worker()
    auto.bridge()
    auto.produce("found", *[{"sleep": 0.06}] * 40)
    auto.produce("limited", *range(40))
    all_settled(auto, "found", done=40)
    all_settled(auto, "limited", done=40)
    assert set(sizes(worker)) == set(sizes(worker, "limited")) == {1}
    assert in_use(auto, "limited") == {"size": 1, "why": "its rate_limit is 1000/s"}


@pytest.mark.slow
def test_after_a_lost_process_deliveries_go_one_by_one(auto: Stack):
    worker = auto.worker()
    auto.bridge()
    auto.produce("found", *range(2_000))
    eventually(lambda: len(auto.done("found")) == 2_000, 30)
    (slow,) = auto.produce("found", {"sleep": 20})
    run = eventually(lambda: auto.runs("found", slow), 10)[0]
    os.kill(run.pid, signal.SIGKILL)
    # It comes again after a second.
    eventually(lambda: len(auto.runs("found", slow)) == 2, 20)
    received = len(sizes(worker))
    auto.produce("found", *range(50))
    eventually(lambda: len(auto.done("found")) >= 2_050, 30)
    assert set(sizes(worker)[received:]) == {1}
    lost = {"size": 1, "why": "a process was lost with one of its messages"}
    eventually(lambda: in_use(auto) == lost, 10, "the bridge's next announcement says so")


def _done(stack: Stack, coordinates: str) -> bool:
    return coordinates in stack.done("found")
