"""A worker that is told to stop gives back what it holds, and is not missed."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.lossless.harness import Broker, Worker, wait_until

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]


def started(broker: Broker) -> int:
    """How many naps have begun."""
    return int(broker.notes.llen("started"))


@pytest.mark.slow
def test_a_warm_shutdown_ends_what_runs_and_gives_back_the_rest_at_once(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    worker = start_worker("-c", "2")
    for number in range(6):
        send("nap", 1.5, number)
    wait_until(lambda: started(broker) == 2 and broker.taken() == 6)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: broker.client.llen("celery") == 4, 2)
    assert not ran()
    assert worker.ends(15) == 0
    assert sorted(ran()) == [0, 1]
    assert not broker.client.exists("_taken")
    start_worker("-c", "4")
    wait_until(lambda: sorted(ran()) == [0, 1, 2, 3, 4, 5], 20)


@pytest.mark.slow
def test_a_cold_shutdown_gives_back_at_once(broker: Broker, start_worker: Start, send: Send) -> None:
    worker = start_worker()
    for number in range(4):
        send("nap", 30, number)
    wait_until(lambda: started(broker) and broker.taken() == 4)
    worker.signal(signal.SIGQUIT)
    worker.ends(20)
    assert broker.client.llen("celery") == 4
    assert broker.client.hlen("_taken") == 0


@pytest.mark.slow
def test_a_consumer_that_celery_starts_anew_keeps_what_runs_and_gives_back_the_rest(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    worker = start_worker(options={"dead_after": 0.9})
    for number in range(4):
        send("nap", 0.7, number)
    wait_until(lambda: started(broker) == 1 and broker.taken() == 4)
    worker.signal(signal.SIGUSR2)
    wait_until(lambda: "Connection to broker lost" in worker.text)
    wait_until(lambda: sorted(ran()) == [0, 1, 2, 3], 20)
    assert started(broker) == 4
    wait_until(lambda: not broker.taken())
    wait_until(lambda: broker.client.hlen("_taken") == 1)
    assert not worker.exited


@pytest.mark.slow
def test_a_task_that_celery_cancels_at_a_connection_error_runs_again(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    worker = start_worker(worker_cancel_long_running_tasks_on_connection_loss=True)
    send("nap", 1.5, 1)
    wait_until(lambda: started(broker) == 1)
    worker.signal(signal.SIGUSR2)
    wait_until(lambda: ran() == [1], 20)
    assert started(broker) == 2
    wait_until(lambda: not broker.taken())
