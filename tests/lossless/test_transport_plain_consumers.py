"""Without an event loop: kombu's own consumers, simple queues and pidboxes on this transport."""

import socket
import threading
import time
from contextlib import suppress
from typing import Any

import kombu
import pytest
from kombu.pidbox import Mailbox

from tests.lossless.harness import Broker

mailbox: Any = Mailbox("test", type="fanout")  # bound to a connection by calling it, which its stubs do not know


@pytest.fixture
def queue() -> kombu.Queue:
    return kombu.Queue("drained", routing_key="drained")


def publish(connection: Any, queue: kombu.Queue, *bodies: Any) -> None:
    producer = kombu.Producer(connection.default_channel)
    for body in bodies:
        producer.publish(body, routing_key=queue.name, declare=[queue])


def consumer(connection: Any, queue: kombu.Queue, received: list[Any], **options: Any) -> Any:
    def on_message(body: Any, message: Any) -> None:
        received.append(body)
        if not options.get("no_ack"):
            message.ack()

    return kombu.Consumer(connection, [queue], callbacks=[on_message], **options)


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_call_delivers_one_message_and_the_rest_stays_in_redis(broker: Broker, queue: kombu.Queue, no_ack: bool):
    received: list[Any] = []
    with kombu.Connection(broker.url) as connection:
        publish(connection, queue, 1, 2, 3)
        with consumer(connection, queue, received, no_ack=no_ack):
            connection.drain_events(timeout=5)
        assert received == [1]
    assert broker.client.llen(queue.name) == 2
    assert not broker.taken()


def test_a_call_without_a_message_lasts_until_its_time_is_over(broker: Broker, queue: kombu.Queue):
    with kombu.Connection(broker.url) as connection, consumer(connection, queue, []):
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.4)
            assert time.monotonic() - began >= 0.4


def test_a_call_returns_with_the_message_that_comes_late(broker: Broker, queue: kombu.Queue):
    received: list[Any] = []
    with (
        kombu.Connection(broker.url) as connection,
        kombu.Connection(broker.url) as other,
        consumer(connection, queue, received),
    ):
        later = threading.Timer(0.2, publish, (other, queue, "late"))
        later.start()
        connection.drain_events(timeout=10)
        later.join()
    assert received == ["late"]


def test_what_was_taken_without_acknowledgement_and_not_delivered_goes_back(broker: Broker, queue: kombu.Queue):
    with kombu.Connection(broker.url) as connection:
        publish(connection, queue, "mine")
        with consumer(connection, queue, [], no_ack=True) as consuming:
            consuming.channel.taker.turn()  # the take is on its way when the connection closes
    assert broker.client.llen(queue.name) == 1


def test_a_broadcast_message_that_is_requeued_comes_again_where_it_was(broker: Broker):
    casts = kombu.Exchange("casts", type="fanout")
    received: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        received.append((body, bool(message.delivery_info.get("redelivered"))))
        message.reject(requeue=len(received) < 3)

    with kombu.Connection(broker.url) as connection:
        queue = kombu.Queue("mine", casts, routing_key="casts")
        with kombu.Consumer(connection, [queue], callbacks=[on_message], prefetch_count=1):
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.2)  # Redis confirms the subscription
            kombu.Producer(connection.default_channel, exchange=casts).publish("all", routing_key="casts")
            connection.drain_events(timeout=5)
    assert received == [("all", False), ("all", True), ("all", True)]
    assert not broker.client.keys("mine*")


def answer(url: str, name: str, pause: float, listens: threading.Event) -> None:
    """Be a worker that answers one ping after a pause."""
    pinged: list[str] = []

    def ping(state: Any) -> str:
        time.sleep(pause)
        pinged.append(name)
        return "pong"

    with kombu.Connection(url) as connection:
        node = mailbox(connection).Node(name, channel=connection.channel(), handlers={"ping": ping})
        with node.listen():
            deadline = time.monotonic() + 10
            while not pinged and time.monotonic() < deadline:
                try:
                    connection.drain_events(timeout=0.1)
                except TimeoutError:
                    listens.set()


def test_a_ping_waits_for_each_answer_and_no_longer(broker: Broker):
    workers = []
    for name, pause in [("quick", 0.0), ("quicker", 0.0), ("late", 0.3)]:
        listens = threading.Event()
        workers.append(threading.Thread(target=answer, args=(broker.url, name, pause, listens)))
        workers[-1].start()
        assert listens.wait(10)
    began = time.monotonic()
    with kombu.Connection(broker.url) as connection:
        answers = mailbox(connection).call(["quick", "quicker", "late"], "ping", timeout=20)
    assert sorted(name for answer in answers for name in answer) == ["late", "quick", "quicker"]
    assert time.monotonic() - began < 10
    for thread in workers:
        thread.join()
