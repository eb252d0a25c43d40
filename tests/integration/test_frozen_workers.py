"""Workers that are gone for a while, or whose main process is gone: nothing runs in two places that is known to."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes import Served, Stack, eventually

HANDLERS = ("auto", "many", "one")
SOON: dict[str, Any] = {"CELERY_CONFIG_MODULE": "tests.handlers.soon_lost"}


def children(worker: Served) -> list[int]:
    with open(f"/proc/{worker.pid}/task/{worker.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


@contextlib.contextmanager
def frozen(worker: Served) -> Iterator[None]:
    pids = [worker.pid, *children(worker)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def begun(stack: Stack, handler: str) -> Counter[str]:
    return Counter(run.coordinates for run in stack.runs(handler) if run.outcome == "begun")


@pytest.mark.slow
def test_a_worker_that_wakes_runs_no_more_of_what_others_have(innocents: Stack):
    innocents.bridge()
    produced = innocents.produce("orders", *({"seconds": 0.3} for _ in range(8)))
    eventually(lambda: innocents.waiting() >= 9, 20, "handed off")
    sleeper = innocents.worker("-c", "3", **SOON)
    eventually(lambda: all(begun(innocents, name) for name in ("auto", "many", "one")), 20, "each handler runs")
    with frozen(sleeper):
        held = {run.coordinates + run.handler for run in innocents.runs() if run.outcome == "begun"}
        ended = {run.coordinates + run.handler for run in innocents.runs() if run.outcome == "done"}
        innocents.worker("-c", "3", **SOON)
        eventually(lambda: all(set(innocents.done(name)) >= set(produced) for name in ("auto", "many", "one")), 40)
    sleeper.says("are left to them", 10)
    time.sleep(0.7)  # what it would run now it runs now
    for name in ("auto", "many", "one"):
        for coordinates, count in begun(innocents, name).items():
            cut_short = coordinates + name in held - ended
            # What ended a moment before may not have been marked.
            assert count == (2 if cut_short else 1) or (count == 2 and coordinates + name in held), (name, coordinates)
    assert len(innocents.dead_letters("orders")) == 0


@pytest.mark.slow
def test_children_die_with_their_main_process_so_that_nothing_runs_twice_at_once(innocents: Stack):
    innocents.bridge()
    worker = innocents.worker("-c", "1", **SOON)
    (long,) = innocents.produce("orders", {"seconds": 60})
    eventually(lambda: innocents.runs(coordinates=long), 20)
    (child,) = children(worker)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{child}"), 20, "Linux ends it, as Celery has asked for")


@pytest.mark.slow
def test_while_a_main_process_alone_is_stopped_its_child_ends_what_it_runs_and_leaves_the_rest(innocents: Stack):
    produced = innocents.produce("orders", *({"takes": {"many": 2}} for _ in range(6)))
    innocents.bridge()
    eventually(lambda: innocents.waiting() >= 3, 20, "handed off")
    stopped = innocents.worker("-c", "1", **SOON)
    (child,) = children(stopped)
    eventually(lambda: begun(innocents, "many"), 30, "its batch runs")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        innocents.worker("-c", "3", **SOON)
        eventually(lambda: all(set(innocents.done(name)) == set(produced) for name in HANDLERS), 50, "all are done")
        stopped.says("are left to them", 10)
        assert os.path.exists(f"/proc/{child}")
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    time.sleep(1)  # what it would run now it runs now
    twice = {name: {run for run, count in begun(innocents, name).items() if count > 1} for name in HANDLERS}
    # It asks a second later at most: what it was at when others were given its batch runs there, too, and its next.
    assert len(twice["many"]) <= 2, twice
    assert (twice["auto"], twice["one"]) == (set(), set())
    assert max(begun(innocents, "many").values()) <= 2
    assert len(innocents.dead_letters("orders")) == 0
