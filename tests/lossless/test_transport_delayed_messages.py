"""What is not due yet waits in Redis: in no worker's memory, through any crash, once, and on time."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import Connection, Consumer, Queue
from kombu.transport.redis import Transport as PlainTransport

from lossless.transport import message_fetch
from lossless.transport.transport_scripts import RELEASE_EARLY
from lossless.worker import consumer
from lossless.worker.message_burial import UNKNOWN_SINCE
from lossless.worker.unknown_tasks import UnknownTasks
from tests.lossless.harness import TRANSPORT_APP, Broker, Worker, entry, wait_until
from tests.servers.proxy import Proxy

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]
MARK = f"{TRANSPORT_APP}.mark"


def when(broker: Broker) -> dict[int, float]:
    """Return when each task ran."""
    return dict(broker.noted("ran"))


@pytest.mark.slow
def test_a_countdown_survives_every_worker_and_runs_once_on_time(
    broker: Broker, start_worker: Start, send: Send, ran: Ran
) -> None:
    worker = start_worker()
    due = time.time() + 2
    send("mark", 1, countdown=2)
    assert broker.client.llen("celery") == 0
    assert broker.client.zcard("_waiting.celery") == 1
    worker.kill()
    for _ in range(2):
        start_worker()
    wait_until(lambda: ran() == [1], 10)
    assert when(broker)[1] >= due  # never early; how late depends on the machine
    time.sleep(0.5)
    assert ran() == [1]
    assert not broker.client.exists("_waiting.celery", "_waiting")


def test_waiting_messages_are_on_time_and_not_held(
    broker: Broker, start_worker: Start, producer: Celery, ran: Ran
) -> None:
    start_worker("-c", "2")
    start = time.time() + 1.5
    with producer.producer_or_acquire() as sender, sender.batch():
        for number in range(300):
            producer.send_task(MARK, (number,), countdown=1.5 + number / 300, producer=sender)
    assert broker.client.zcard("_waiting.celery") > 250
    assert broker.taken() == 0
    wait_until(lambda: len(ran()) >= 300, 15)
    assert sorted(ran()) == list(range(300))
    late = sorted(at - start - number / 300 for number, at in when(broker).items())
    assert late[0] >= -0.3  # published within the first moments
    # Those that are due last come last: each waits for its own time, however long the machine takes for all.
    assert [number for number, at in sorted(when(broker).items(), key=lambda run: run[1])][-1] >= 250


@pytest.mark.slow
def test_a_plain_clients_countdown_waits_in_redis_too(broker: Broker, start_worker: Start, ran: Ran) -> None:
    app = Celery()
    start_worker()
    with Connection(broker.url, transport=PlainTransport) as connection:
        for number in range(50):
            app.send_task(MARK, (number,), countdown=3, connection=connection)
    wait_until(lambda: broker.client.zcard("_waiting.celery") == 50, 2.5)
    wait_until(lambda: not broker.taken())
    wait_until(lambda: len(ran()) == 50)
    assert sorted(ran()) == list(range(50))


@pytest.mark.slow
def test_a_restart_of_redis_keeps_what_waits(broker: Broker, start_worker: Start, send: Send, ran: Ran) -> None:
    start_worker()
    send("mark", 1, countdown=2)
    broker.restart()
    wait_until(lambda: ran() == [1], 10)


def test_priorities_and_queues_are_kept_while_waiting(broker: Broker, producer: Celery, start_worker: Start) -> None:
    producer.send_task(MARK, (1,), queue="other", priority=9, countdown=0.5)
    assert broker.client.zcard("_waiting.other") == 1
    start_worker("-Q", "third")
    wait_until(lambda: broker.client.llen("other\x06\x169") == 1)


def test_purging_and_deleting_a_queue_covers_what_waits_for_it(broker: Broker, producer: Celery) -> None:
    for number in range(3):
        producer.send_task(MARK, (number,), countdown=60)
    producer.send_task(MARK, (3,))
    with producer.connection_for_write() as connection:
        channel: Any = connection.default_channel
        assert channel.queue_purge("celery") == 4
        assert broker.client.keys("*waiting*") == []
        producer.send_task(MARK, (1,), countdown=60)
        queue = producer.amqp.queues["celery"](channel)
        queue.declare()
        queue.delete(if_empty=True)
        assert broker.client.zcard("_waiting.celery") == 1
        queue.delete()
        assert broker.client.keys("*waiting*") == []


def test_an_eta_that_is_no_time_or_never_comes_harms_nobody(
    broker: Broker, start_worker: Start, send: Send, producer: Celery, ran: Ran
) -> None:
    with producer.producer_or_acquire() as sender:
        for eta in ("soon", 7, "9999-12-31T23:59:59.999999"):
            sender.publish([[1], {}, {}], routing_key="celery", headers={"id": "x", "task": MARK, "eta": eta})
    worker = start_worker()
    send("mark", 2)
    wait_until(lambda: ran() == [2])
    wait_until(lambda: not broker.taken())
    assert not worker.exited


class Unanswered(Proxy):
    """Cuts a connection once when a message is put among those that wait: Redis gets it, the answer gets nowhere."""

    left = 1

    def passes(self, data: bytes, source: socket.socket) -> None:
        if b"_waiting.celery" in data and self.left:
            self.left -= 1
            source.shutdown(socket.SHUT_RDWR)


def test_what_is_put_again_because_an_answer_was_lost_waits_once(broker: Broker) -> None:
    with Unanswered(broker.port) as proxy, Celery(broker=f"redis://127.0.0.1:{proxy.port}/{broker.database}") as app:
        app.send_task(MARK, (1,), countdown=60)
        assert proxy.left == 0
        assert broker.client.zcard("_waiting.celery") == 1
        for _ in range(2):
            app.send_task(MARK, (2,), countdown=60, task_id="the same")
    tags = {message["properties"]["delivery_tag"] for message in broker.queued()}
    assert len(tags) == len(broker.queued()) == 3


@pytest.mark.parametrize("wrong", [7200, -7200])
def test_a_workers_wrong_clock_does_not_end_the_wait_for_a_task_that_it_does_not_know(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    right = time.time
    monkeypatch.setattr(message_fetch, "time", lambda: right() + wrong)
    monkeypatch.setattr("time.time", lambda: right() + wrong)
    came: list[Any] = []
    broker.push(entry("nobody.knows", "unknown", **{UNKNOWN_SINCE: int((right() - 60) * 1000)}))
    with Connection(broker.url) as connection, Celery(broker=broker.url) as app:
        channel = connection.channel()
        with Consumer(channel, [Queue("celery")], on_message=came.append, accept=["json"]):
            connection.drain_events(timeout=5)
            worker: Any = consumer.Consumer.__new__(consumer.Consumer)
            worker.app, worker._burial_wants, worker._unknown_tasks = app, None, UnknownTasks(worker)
            worker.on_unknown_task(None, came[0], KeyError("nobody.knows"))
            wait_until(lambda: broker.client.zcard("_waiting.celery") == 1)
    ((_, due),) = broker.client.zrange("_waiting.celery", 0, -1, withscores=True)
    assert 0 < due - right() <= 31


def test_what_was_put_off_stays_waiting_where_its_list_is_refused(broker: Broker) -> None:
    broker.client.set("celery", "no list")
    broker.client.zadd("_waiting.celery", {b"celery\0message": 1e12})
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        broker.client.eval(RELEASE_EARLY.text, 2, "_waiting.celery", "celery", b"celery\0message", b"message")
    assert broker.client.zcard("_waiting.celery") == 1
    broker.client.delete("celery")
    broker.client.eval(RELEASE_EARLY.text, 2, "_waiting.celery", "celery", b"celery\0message", b"message")
    assert broker.client.lrange("celery", 0, -1) == [b"message"]
    assert not broker.client.exists("_waiting.celery")
