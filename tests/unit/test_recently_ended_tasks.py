"""What ended in a worker a moment ago, and whether a look is older."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lossless.transport.script_hook import HookStep
from tasks.worker import delivery_request
from tasks.worker.delivery_request import REMEMBERED, RecentEnds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(delivery_request, "time", clock)
    return clock


def test_a_look_from_before_an_end_says_nothing_and_one_from_after_it_does(clock: Clock) -> None:
    ends = RecentEnds()
    ends.add("orders-0-1:h")
    assert ends.since("orders-0-1:h", clock.now - 0.1)
    assert not ends.since("orders-0-1:h", clock.now + 0.1)
    assert not ends.since("orders-0-2:h", clock.now - 0.1)


def test_a_look_says_nothing_until_redis_has_answered_the_mark(clock: Clock) -> None:
    ends, step = RecentEnds(), HookStep([], [])
    ends.add("orders-0-1:h", step)
    clock.now += 50
    for number in range(10):
        ends.add(f"orders-0-{number}:other", HookStep([], [], clock.now))
    assert ends.since("orders-0-1:h", clock.now)
    step.done_at = clock.now
    assert ends.since("orders-0-1:h", clock.now - 0.1)
    assert not ends.since("orders-0-1:h", clock.now + 0.1)


def test_an_end_that_is_told_twice_keeps_its_mark(clock: Clock) -> None:
    ends = RecentEnds()
    ends.add("orders-0-1:h", HookStep([], []))
    ends.add("orders-0-1:h")
    assert ends.since("orders-0-1:h", clock.now + 1)


def test_what_ended_seconds_ago_is_forgotten_also_behind_what_redis_never_answers(clock: Clock) -> None:
    ends = RecentEnds()
    ends.add("stuck", HookStep([], [], math.inf))
    for number in range(10_000):
        clock.now += 0.01
        ends.add(str(number), HookStep([], [], clock.now))
    assert len(ends) <= REMEMBERED / 0.01 + 2
    assert ends.since("stuck", clock.now)


def test_threads_whose_tasks_end_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_request, "REMEMBERED", 0.0002)
    ends, before = RecentEnds(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def end_many(thread: int) -> None:
        for number in range(5_000):
            ends.add(f"{thread} {number}")

    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(end_many, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert len(ends) < 8 * 5_000
