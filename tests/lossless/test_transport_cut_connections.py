"""Whenever a connection is cut, from a worker's first second to its last: it does not end, and loses nothing."""

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.lossless.harness import Broker, Worker, wait_until

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]


def cut_until(broker: Broker, worker: Worker, seconds: float) -> None:
    """Cut all connections every 20 to 300 ms, for some seconds or until the worker has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not worker.exited:
        broker.cut()
        time.sleep(random.uniform(0.02, 0.3))


@pytest.mark.slow
def test_a_cut_while_a_worker_looks_for_its_neighbours_does_not_end_it(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    send("mark", 1)
    worker = start_worker(wait=False, alone=False)
    worker.says("mingle: searching")
    cut_until(broker, worker, 1)
    wait_until(lambda: ran() == [1])
    assert not worker.exited


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("-E",), ("-P", "solo"), ("-P", "threads"), ("--without-mingle", "--without-gossip")]
)
def test_no_cut_at_any_moment_of_its_life_ends_a_worker(
    broker: Broker, start_worker: Start, send: Send, ran: Ran, arguments: tuple[str, ...]
) -> None:
    for number in range(50):
        send("mark", number)
    worker = start_worker(*arguments, wait=False, alone=False)
    cut_until(broker, worker, 8)
    assert not worker.exited
    wait_until(lambda: set(ran()) == set(range(50)), 30)
    wait_until(lambda: not broker.left(), 30)
    worker.signal(signal.SIGTERM)
    cut_until(broker, worker, 20)
    assert worker.exit_code == 0
    assert not broker.left()
