"""Processes and workers die while retries of several batches join: each delivery has its one end."""

import os
import random
import signal
from collections import Counter
from contextlib import suppress

import pytest
from kombu.utils.json import loads

from bridge.formats.celery_header import HeaderContents
from tests.delivery_checks import all_settled, choose
from tests.processes import Served, Stack, eventually
from tests.project_process import children

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

BATCH, WAVE, WAVES = 200, 3_000, 6
#: Seconds before the last that a process is known to have done, within which what it did may not be marked.
UNMARKED = 0.1


def joined(stack: Stack) -> bool:
    """Whether a message waits that carries what came in several batches."""
    with stack.redis() as client:
        waiting = client.zrange(f"_waiting.{stack.queue}", 0, -1)
    found = (HeaderContents.from_headers(loads(entry.partition(b"\0")[2])["headers"]) for entry in waiting)
    return any(contents is not None and len({at // BATCH for at in contents.offsets}) > 1 for contents in found)


def wave(stack: Stack) -> tuple[int, int]:
    """Produce: every 20th fails, up to three times, every 500th dies after a retry. How many, and how many die."""
    values = [
        {"fail": 99} if n % 500 == 9 else {"fail": 1 + n // 20 % 3} if n % 20 == 7 else {"sleep": 0.0005}
        for n in range(WAVE)
    ]
    stack.produce("many", *values)
    return WAVE, sum(value.get("fail") == 99 for value in values)


@pytest.mark.parametrize("seed", range(1))
def test_nothing_is_lost_and_nothing_repeated_but_what_was_running_when_retries_join(stack: Stack, seed: int):
    draw = random.Random(seed)
    choose(stack, {"many": {"commit": "completion"}}, broker_transport_options={"dead_after": 3})
    stack.make_topics("many", partitions=2)
    stack.bridge()
    workers = [stack.worker(), stack.worker()]
    killed: set[int] = set()
    total = dead = 0
    for number in range(WAVES):
        produced, dying = wave(stack)
        total, dead = total + produced, dead + dying
        eventually(lambda: joined(stack), 20, "retries have joined")
        victim = workers.pop(0)
        if number % 2:
            killed |= set(children(victim))
            victim.kill()
            victim = stack.worker(wait=False)
        else:
            killed |= kill_child(victim, draw)
        workers.append(victim)
    all_settled(stack, "many", done=total - dead, dead=dead, within=120)
    assert repeated_by_others(stack, killed) == set()


def kill_child(worker: Served, draw: random.Random) -> set[int]:
    found = children(worker)
    if not found:
        return set()
    child = draw.choice(found)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return {child}


def repeated_by_others(stack: Stack, killed: set[int]) -> set[str]:
    """What was done more than once, and not just before the end of a process that was killed."""
    runs = [run for run in stack.runs("many") if run.outcome == "done"]
    last = {run.pid: run.time for run in sorted(runs, key=lambda run: run.time)}
    excused = {run.coordinates for run in runs if run.pid in killed and run.time > last[run.pid] - UNMARKED}
    return {name for name, times in Counter(run.coordinates for run in runs).items() if times > 1} - excused
