"""What a worker takes is never lost, and never given away while the worker lives."""

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from celery import Celery
from kombu import Connection
from kombu.transport.redis import Transport as PlainTransport

from tests.lossless.harness import TRANSPORT_APP, Broker, Worker, wait_until

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]


def started(broker: Broker) -> int:
    """How many naps have begun."""
    return int(broker.notes.llen("started"))


def test_a_frozen_idle_worker_takes_nothing(broker: Broker, start_worker: Start, send: Send, ran: Ran) -> None:
    worker = start_worker()
    worker.freeze()
    for number in range(5):
        send("mark", number)
    worker.kill()
    assert broker.client.llen("celery") == 5
    start_worker()
    wait_until(lambda: sorted(ran()) == list(range(5)))


def test_a_taken_message_comes_back_counted_when_its_worker_is_killed(
    broker: Broker, start_worker: Start, send: Send
) -> None:
    worker = start_worker()
    send("nap", 30)
    wait_until(lambda: started(broker))
    worker.kill()
    assert broker.client.llen("celery") == 0
    start_worker("-Q", "another")
    raw = wait_until(lambda: broker.client.lindex("celery", 0), 6)
    message = json.loads(raw)
    assert message["headers"]["restored"] == 1
    assert message["headers"]["redelivered"] is True
    assert message["properties"]["delivery_info"]["redelivered"] is True
    assert broker.client.hlen("_taken") == 1


def more_than(ran: Ran, count: int) -> bool:
    return len(ran()) > count


def test_nothing_is_lost_when_workers_are_killed_under_load(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    for number in range(600):
        send("mark", number)
    for _ in range(3):
        worker = start_worker("-c", "2")
        wait_until(partial(more_than, ran, len(ran()) + 20))
        worker.kill()
    start_worker("-c", "2")
    wait_until(lambda: set(ran()) == set(range(600)), 30)
    wait_until(lambda: not broker.taken())
    assert len(ran()) <= 600 + 3 * 8


@pytest.mark.slow
def test_a_task_longer_than_every_timeout_runs_once_while_its_worker_lives(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    for _ in range(2):
        start_worker(options={"dead_after": 0.9, "visibility_timeout": 1, "unacked_restore_interval": 1})
    send("nap", 2.5, 1)
    wait_until(lambda: ran() == [1], 10)
    time.sleep(0.5)
    assert started(broker) == 1
    wait_until(lambda: not broker.taken())


@pytest.mark.slow
def test_a_worker_whose_main_loop_is_blocked_by_its_task_is_alive(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    start_worker("-P", "solo", options={"dead_after": 0.9})
    send("nap", 3, 1)
    wait_until(lambda: started(broker))
    start_worker(options={"dead_after": 0.9})
    wait_until(lambda: ran() == [1], 10)
    wait_until(lambda: not broker.taken())
    assert started(broker) == 1


@pytest.mark.slow
def test_a_worker_believed_dead_does_no_harm_when_it_wakes_up(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    sleeper = start_worker()
    send("nap", 1.5, 1)
    wait_until(lambda: started(broker))
    sleeper.freeze()
    other = start_worker()
    wait_until(lambda: ran() == [1], 15)
    send("nap", 3, 2)
    wait_until(lambda: started(broker) == 3)
    sleeper.signal_all(signal.SIGCONT)
    wait_until(lambda: ran().count(1) == 2, 10)  # it ends its own run; the ack removes nothing of others
    wait_until(lambda: broker.client.hlen("_taken") == 2)
    wait_until(lambda: 2 in ran(), 10)
    assert started(broker) == 3
    other.kill()
    send("mark", 3)
    wait_until(lambda: 3 in ran(), 10)


def test_queues_are_served_in_turn(start_worker: Start, send: Send, ran: Ran) -> None:
    for number in range(200):
        send("mark", number, queue="a")
    send("mark", 1000, queue="b")
    start_worker("-Q", "a,b")
    wait_until(lambda: len(ran()) == 201)
    assert ran().index(1000) < 20


def test_priorities_go_first_as_celery_documents_them(start_worker: Start, send: Send, ran: Ran) -> None:
    for number in range(10):
        send("mark", number, priority=9)
    for number in range(10, 20):
        send("mark", number, priority=3)
    for number in range(20, 30):
        send("mark", number)
    start_worker(worker_prefetch_multiplier=1)
    wait_until(lambda: len(ran()) == 30)
    assert ran() == [*range(20, 30), *range(10, 20), *range(10)]


@pytest.mark.slow
def test_two_workers_share_several_queues(broker: Broker, start_worker: Start, send: Send, ran: Ran) -> None:
    start_worker("-Q", "a,b", "-c", "2")
    start_worker("-Q", "b,a", "-c", "2")
    for number in range(300):
        send("mark", number, queue="ab"[number % 2])
    wait_until(lambda: sorted(ran()) == list(range(300)), 20)
    wait_until(lambda: not broker.taken())


@pytest.mark.slow
def test_a_key_prefix_is_honoured(broker: Broker, start_worker: Start, ran: Ran) -> None:
    options = {"global_keyprefix": "team."}
    app = Celery(broker=broker.url, broker_transport_options=options)
    name = f"{TRANSPORT_APP}.mark"
    worker = start_worker(options=options)
    app.send_task(name, (1,))
    app.send_task(name, (2,), countdown=0.5)
    assert all(key.startswith(b"team.") for key in broker.client.scan_iter())
    wait_until(lambda: ran() == [1, 2])
    app.send_task(f"{TRANSPORT_APP}.nap", (30,))
    wait_until(lambda: started(broker))
    worker.kill()
    start_worker("-Q", "another", options=options)
    wait_until(lambda: broker.client.llen("team.celery") == 1)
    assert all(key.startswith(b"team.") for key in broker.client.scan_iter())


def test_plain_clients_send_and_look_at_the_same_queues(broker: Broker, start_worker: Start, ran: Ran) -> None:
    app = Celery()
    app.connection_for_write = app.connection_for_read = lambda *args, **kwargs: Connection(  # type: ignore[method-assign]
        broker.url, transport=PlainTransport
    )
    with Connection(broker.url, transport=PlainTransport) as connection:
        assert type(connection.transport) is PlainTransport
        app.send_task(f"{TRANSPORT_APP}.mark", (1,), connection=connection)
        channel: Any = connection.default_channel
        assert channel.queue_declare("celery", passive=True).message_count == 1
        start_worker()
        wait_until(lambda: ran() == [1])
        assert app.control.inspect(connection=connection, timeout=2).ping()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_other_pools_take_and_acknowledge(broker: Broker, start_worker: Start, send: Send, ran: Ran, pool: str) -> None:
    start_worker("-P", pool, "-c", "2")
    for number in range(60):
        send("mark", number)
    wait_until(lambda: sorted(ran()) == list(range(60)))
    wait_until(lambda: not broker.taken(), 2)


@pytest.mark.slow
def test_a_pool_that_spawns_takes_and_acknowledges(broker: Broker, start_worker: Start, send: Send, ran: Ran) -> None:
    start_worker(worker_pool_start_method="spawn")
    send("mark", 1)
    wait_until(lambda: ran() == [1])
    wait_until(lambda: not broker.taken(), 2)
