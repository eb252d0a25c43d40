"""Processes that die under real deliveries: each delivery has its one end, and its neighbours do not notice."""

import time
from collections import Counter
from typing import Any

import pytest
from celery import Celery

from tests.processes import DeadLetter, Stack, eventually

NAME = "tests.handlers.deadly.deadly"
SOON: dict[str, Any] = {"CELERY_CONFIG_MODULE": "tests.handlers.soon_lost"}


@pytest.fixture
def deadly(stack: Stack) -> Stack:
    stack.environ["HANDLERS"] = "tests.handlers.deadly"
    stack.make_topics("orders", "limited")
    stack.bridge()
    return stack


def by_origin(letters: list[DeadLetter]) -> dict[str, dict[str, str]]:
    return {letter.origin: letter.ours for letter in letters}


def test_what_kills_its_process_or_overruns_its_time_is_poison_within_half_a_minute(deadly: Stack):
    worker = deadly.worker()
    started = time.monotonic()
    killed, exits = deadly.produce("orders", {"end": "killed"}, {"end": "exits"}, key=b"k", headers=[("a", b"1")])
    (limited,) = deadly.produce("limited", {"n": 1})
    neighbours = deadly.produce("orders", *({"seconds": 0.05} for _ in range(30)))
    letters = deadly.dead("orders", 2, 30)
    (overrun,) = deadly.dead("limited", 1, 30)
    assert time.monotonic() - started < 30
    found = by_origin(letters)
    assert set(found) == {killed, exits}
    causes = (
        (found[killed], "signal 9 (SIGKILL)"),
        (found[exits], "exitcode 7"),
        (overrun.ours, "hard time limit of 1 s"),
    )
    for ours, cause in causes:
        assert (ours["reason"], ours["attempts"], ours["attempts_lost"]) == ("poison", "3", "3")
        assert ours["error_message"] == f"{cause}; its process was lost 3 times"
        assert [line.partition("Z ")[2] for line in ours["error_traceback"].splitlines()] == [cause] * 3
    assert found[killed]["error_class"] == "WorkerLostError"
    assert overrun.ours["error_class"] == "TimeLimitExceeded"
    letter = next(letter for letter in letters if letter.origin == killed)
    assert (letter.record.key(), letter.record.value(), letter.theirs) == (b"k", b'{"end": "killed"}', [("a", b"1")])
    for coordinates in (killed, exits, limited):
        assert len(deadly.runs(coordinates=coordinates)) == 3
    eventually(lambda: sorted(deadly.done()) == sorted(neighbours), 10, "the neighbours are done, once each")
    eventually(lambda: not deadly.held_ids() and not deadly.waiting(), 10)
    assert worker.exit_code is None
    assert worker.metric("worker_dead_lettered_total", handler=NAME, reason="poison") == 2


@pytest.mark.slow
def test_a_revoked_delivery_is_a_dead_letter_whether_it_runs_or_waits(deadly: Stack):
    deadly.worker("-c", "1", "--prefetch-multiplier=1")
    (running,) = deadly.produce("orders", {"seconds": 60})
    eventually(lambda: deadly.runs(coordinates=running), 20)
    (waiting,) = deadly.produce("orders", {"seconds": 0})
    eventually(lambda: f"{waiting}:{NAME}" in deadly.queued_ids(), 15)
    with Celery(broker=deadly.broker) as app:
        app.control.revoke([f"{waiting}:{NAME}"])
        app.control.revoke([f"{running}:{NAME}"], terminate=True, signal="SIGTERM")
    letters = by_origin(deadly.dead("orders", 2, 20))
    assert set(letters) == {running, waiting}
    assert {ours["reason"] for ours in letters.values()} == {"permanent"}
    assert {ours["error_class"] for ours in letters.values()} == {"TaskRevokedError"}
    assert deadly.done() == []
    assert deadly.runs(coordinates=waiting) == []
    eventually(lambda: not deadly.held_ids() and not deadly.waiting(), 10)


@pytest.mark.slow
def test_what_a_killed_worker_held_is_taken_up_by_another_and_nothing_else_runs_twice(deadly: Stack):
    victim, other = deadly.worker(**SOON), deadly.worker(**SOON)
    coordinates = deadly.produce("orders", *({"seconds": 1.5} for _ in range(12)))
    eventually(lambda: len(deadly.runs()) >= 4, 20)
    children = {int(pid) for pid in _children(victim.pid)}
    victim.kill()
    killed = time.monotonic()
    begun = [run for run in deadly.runs() if run.pid in children and run.outcome == "begun"]
    ended = {run.coordinates for run in deadly.runs() if run.pid in children and run.outcome == "done"}
    touched = {run.coordinates for run in begun}
    lost = touched - ended  # of those that ended, the last ones may not have been acknowledged
    assert lost
    eventually(lambda: set(deadly.done()) == set(coordinates), 30)
    assert time.monotonic() - killed < 25
    counts = Counter(run.coordinates for run in deadly.runs() if run.outcome == "begun")
    assert {counts[name] for name in lost} == {2}
    assert {counts[name] for name in coordinates if name not in touched} == {1}
    assert other.exit_code is None
    eventually(lambda: not deadly.held_ids(), 10)


@pytest.mark.slow
def test_a_worker_told_to_stop_under_load_finishes_what_runs_and_nothing_runs_twice(deadly: Stack):
    first = deadly.worker()
    coordinates = deadly.produce("orders", *({"seconds": 1} for _ in range(8)))
    eventually(lambda: len(deadly.runs()) >= 2, 20)
    assert first.terminate(20) == 0
    begun = {run.coordinates for run in deadly.runs()}
    assert set(deadly.done()) == begun
    assert deadly.held_ids() == []
    assert deadly.waiting() == len(coordinates) - len(begun)
    deadly.worker()
    eventually(lambda: sorted(deadly.done()) == sorted(coordinates), 20)
    assert len(deadly.runs()) == 2 * len(coordinates)
    assert deadly.dead_letters("orders") == []


@pytest.mark.slow
def test_what_does_not_end_in_its_time_after_sigterm_runs_anew_elsewhere(deadly: Stack):
    first = deadly.worker(CELERY_CONFIG_MODULE="tests.handlers.short_grace")
    (coordinates,) = deadly.produce("orders", {"seconds": 4})
    eventually(lambda: deadly.runs(coordinates=coordinates), 20)
    assert first.terminate(10) == 0
    assert deadly.queued_ids() == [f"{coordinates}:{NAME}"]
    deadly.worker()
    eventually(lambda: deadly.done() == [coordinates], 20)
    assert [run.attempt for run in deadly.runs()] == [1, 1, 1]


def _children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()
