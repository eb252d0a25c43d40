"""Listening to what is published never holds a process up, and is begun anew where its connection is another one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.asynchronous import Hub, set_event_loop

from lossless.transport.event_loop_poller import BellConnection
from lossless.transport.redis_outage import make_leaving_class
from tests.lossless.harness import Broker

CASTS: Any = Exchange("casts", type="fanout")
WITHIN = 10.0


class Listener:
    """A process that listens to an exchange, as far as its event loop has come."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.heard: list[Any] = []
        queue: Any = Queue("mine", exchange=CASTS)
        self._consumer: Any = Consumer(self.channel, [queue], callbacks=[lambda body, _: self.heard.append(body)])
        self._consumer.consume()
        self.hears("first")

    @property
    def socket(self) -> Any:
        return self.channel.subclient.connection._sock

    def hears(self, word: str) -> None:
        """What is published now comes."""
        until = monotonic() + WITHIN
        while "begun" not in self.heard:
            assert monotonic() < until, "it hears nothing"
            Producer(self.connection.default_channel).publish("begun", exchange=CASTS)
            self._drain(0.2)
        Producer(self.connection.default_channel).publish(word, exchange=CASTS)
        while word not in self.heard:
            self._drain(WITHIN)
        self.heard.clear()

    def _drain(self, timeout: float) -> None:
        try:
            self.connection.drain_events(timeout=timeout)
        except TimeoutError:
            assert timeout < WITHIN, "nothing comes"

    def readable(self, fileno: int) -> None:
        """The event loop says that a socket is to be read."""
        self.channel.poller.on_readable(fileno)


@pytest.fixture(params=["", "shop."], ids=["plain", "prefixed"])
def listener(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Listener]:
    with Connection(broker.url, transport_options={"global_keyprefix": request.param}) as connection:
        yield Listener(connection)


def returns(act: Callable[[], None]) -> BaseException | None:
    """What it raised; it has some seconds."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except redis.RedisError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WITHIN)
    assert not thread.is_alive(), "it waits for what nobody publishes"
    return raised[0] if raised else None


def test_a_socket_on_which_nothing_has_come_is_not_waited_for(listener: Listener):
    assert returns(lambda: listener.readable(listener.socket.fileno())) is None
    listener.hears("later")


def test_a_connection_that_was_closed_in_the_same_turn_is_not_made_anew_to_wait_on_it(listener: Listener):
    fileno = listener.socket.fileno()
    listener.channel.subclient.connection.disconnect()
    assert isinstance(returns(lambda: listener.readable(fileno)), redis.ConnectionError)
    listener.hears("later")


def test_a_connection_that_is_another_one_by_now_is_listened_on(listener: Listener):
    connection, before = listener.channel.subclient.connection, listener.socket.fileno()
    held = listener.socket.dup()  # its number is not given away again
    connection.disconnect()
    connection.connect()
    assert returns(lambda: listener.readable(before)) is None
    listener.hears("later")
    held.close()


@pytest.fixture
def hub() -> Iterator[Any]:
    """The event loop of this process."""
    made: Any = Hub()
    set_event_loop(made)
    yield made
    set_event_loop(None)
    made.close()


def test_a_connection_that_a_child_has_inherited_is_polled_no_longer_once_it_is_closed_here(broker: Broker, hub: Any):
    connection: Any = make_leaving_class(redis.Connection)(port=broker.port)
    connection.connect()
    hub.poller.register(connection._sock, 1)
    child = os.fork()
    if not child:
        signal.pause()
    try:
        connection.disconnect()
        assert not hub.poller.poll(0.3)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_bell_that_was_not_rung_is_not_waited_for(broker: Broker):
    bell = BellConnection(make_leaving_class(redis.Connection)(port=broker.port, socket_timeout=5), lambda _: None)
    bell.listen("somebody")
    assert returns(lambda: waited.append(bell.read())) is None
    assert waited == [False]
    broker.client.publish("somebody", "1")
    assert bell.connection.can_read(timeout=5)
    assert bell.read()
    bell.cut()


waited: list[bool] = []
