"""While a gate is shut its messages wait in Redis, without a worker's time; when it opens they go on in their order."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Exchange, Queue

from lossless.transport.message_fetch import MOST_ASIDE
from lossless.transport.message_gates import AsideSize, MessageGates, format_gates
from lossless.transport.queue_inspection import find_messages, sample_set_aside
from tests.lossless.harness import Broker, Worker, wait_until
from tests.lossless.test_mixed_fleet import drain
from tests.lossless.test_transport_settlement import numbers

Start = Callable[..., Worker]
Send = Callable[..., Any]
Ran = Callable[[], list[int]]
OPTIONS = {"dead_after": 1.5, "socket_timeout": 0.5}


@pytest.fixture
def gates(broker: Broker) -> MessageGates:
    return MessageGates(broker.client)


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(broker.url, transport_options=OPTIONS) as connection:
        yield connection


@pytest.fixture
def publish(producer: Celery) -> Callable[..., None]:
    """Publish numbers, with gates."""

    def publish(*published: int, **options: Any) -> None:
        for number in published:
            producer.send_task("any", (number,), queue="q", **options)

    return publish


class Reader:
    """Consumes from the queue `q`, acknowledges, and keeps the numbers that came."""

    def __init__(self, connection: Connection, prefetch: int = 10) -> None:
        self.connection, self.came = connection, list[int]()
        self._consumer = Consumer(
            connection, [Queue("q")], on_message=self._on, accept=["json"], prefetch_count=prefetch
        )
        self._consumer.consume()

    def _on(self, message: Any) -> None:
        self.came.append(json.loads(message.body)[0][0] if isinstance(message.body, str | bytes) else -1)
        message.ack()

    def reads(self, *expected: int, within: float = 5.0) -> bool:
        """Whether just these come."""
        until = time.monotonic() + within
        while time.monotonic() < until and len(self.came) < len(expected):
            with contextlib.suppress(TimeoutError, *self.connection.connection_errors):
                self.connection.drain_events(timeout=0.1)
        assert self.came == list(expected)
        return True

    def reads_no_more(self) -> None:
        """What is there to be set aside is set aside, and nothing comes."""
        before = list(self.came)
        with contextlib.suppress(TimeoutError):
            self.connection.drain_events(timeout=0.3)
        assert self.came == before

    def reads_nothing_until(self, aside: dict[str, int], gates: MessageGates, within: float = 10.0) -> None:
        """So many are set aside, and nothing comes."""
        before, deadline = list(self.came), time.monotonic() + within
        while gates.aside() != aside and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                self.connection.drain_events(timeout=0.1)
        assert (gates.aside(), self.came) == (aside, before)


def test_what_names_a_shut_gate_is_set_aside_and_all_else_is_taken(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a", "a test")
    publish(1, gates="a")
    publish(2)
    publish(3, gates="b")
    publish(4, gates="b a")
    reader = Reader(connection)
    reader.reads(2, 3)
    reader.reads_no_more()
    assert gates.aside() == {"a": 2}
    assert gates.shut_names() == {"a": "a test"}
    assert not broker.client.llen("q")
    assert numbers(broker, "_aside.a\0q") == [1, 4]


def test_of_what_is_set_aside_some_are_seen_from_both_ends_and_how_many_there_are(
    gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(*range(5), gates="a")
    Reader(connection).reads_no_more()
    everything = list(sample_set_aside(connection.channel(), 5))
    ((gate, length, some),) = sample_set_aside(connection.channel(), 3)
    assert everything == [("a", 5, everything[0][2])]
    assert (gate, length) == ("a", 5)
    assert some == [everything[0][2][each] for each in (0, 1, 4)]


def test_when_the_gate_opens_all_go_on_first_and_in_their_order(
    gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(1, 2, 3, gates="a")
    reader = Reader(connection, prefetch=1)
    reader.reads_no_more()
    publish(4)
    publish(5, gates="a")
    gates.open("a")
    reader.reads(1, 2, 3, 4, 5)
    assert gates.aside() == {}


def test_a_shut_gate_lets_through_what_it_is_allowed_to_and_no_more(
    gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(1, 2, 3, gates="a")
    reader = Reader(connection)
    reader.reads_no_more()
    assert gates.allow("a", 1)
    reader.reads(1)
    reader.reads_no_more()
    assert gates.allowed("a") == 0
    assert gates.allow("a", 7)
    reader.reads(1, 2, 3)
    assert gates.allowed("a") == 5
    gates.shut("a")
    assert gates.allowed("a") == 0


def test_an_open_gate_allows_nothing_and_stays_open(gates: MessageGates, connection: Connection, publish: Any) -> None:
    assert not gates.allow("a", 1)
    publish(1, 2, gates="a")
    Reader(connection).reads(1, 2)


def test_what_passes_one_gate_waits_at_the_next_and_uses_up_none(
    gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    gates.shut("b")
    publish(1, 2, gates="a b")
    reader = Reader(connection)
    reader.reads_nothing_until({"a": 2}, gates)
    gates.allow("a", 5)
    reader.reads_nothing_until({"b": 2}, gates)
    assert gates.allowed("a") == 5
    gates.open("b")
    reader.reads(1, 2)
    assert gates.allowed("a") == 3


def test_thousands_are_set_aside_and_come_back_in_order_nothing_lost_nothing_twice(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    count = 3 * MOST_ASIDE
    publish(-1, gates="a")
    raw = broker.client.rpop("q")
    body = json.loads(raw)["body"].encode()
    for number in range(count):
        made = raw.replace(body, base64.b64encode(json.dumps([[number], {}, {}]).encode()))
        broker.client.lpush("q", made)
    gates.shut("a")
    publish(count)
    reader = Reader(connection, prefetch=100)
    reader.reads(count)
    assert gates.aside() == {"a": count}
    sizes = gates.measure_aside(["a", "b"])
    assert (sizes["a"].messages, sizes["b"]) == (count, AsideSize())
    assert len(raw) * count / 2 < sizes["a"].bytes < 3 * len(raw) * count
    gates.open("a")
    reader.reads(count, *range(count), within=20)


@pytest.mark.parametrize(
    "options",
    [
        {"argsrepr": '"gates": "a"'},
        {"headers": {"x": '"gates": "a"', "y": ['"gates":"a"', "gates", 'x", "gates": "a']}},
        {"headers": {"gates": "a"}},
        {"headers": {"gates": "a"}, "gates": "b"},
        {"shadow": '\\"gates": "a'},
    ],
    ids=["a text", "headers", "a header", "a header and the property", "quotes"],
)
def test_what_a_message_carries_is_no_gate(
    gates: MessageGates, connection: Connection, producer: Celery, options: dict[str, Any]
) -> None:
    gates.shut("a")
    producer.send_task("any", (1,), queue="q", **options)
    Reader(connection).reads(1)


@pytest.mark.parametrize("large", [100, 900_000])
def test_the_gates_of_a_large_message_are_found(
    gates: MessageGates, connection: Connection, producer: Celery, large: int
) -> None:
    gates.shut("g:needs:bank")
    text = 'ü", "gates": "none", "' * (large // 20)
    producer.send_task("any", (text,), queue="q", headers={"kafka": text}, gates="g:needs:bank", look="page 1" * 50)
    Reader(connection).reads_no_more()
    assert gates.aside() == {"g:needs:bank": 1}


def test_a_foreign_producer_may_write_json_as_it_likes(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    publish(1, gates="a")
    message = json.loads(broker.client.rpop("q"))
    broker.client.lpush("q", json.dumps(message, separators=(",", ":")))
    gates.shut("a")
    Reader(connection).reads_no_more()
    assert gates.aside() == {"a": 1}


@pytest.mark.parametrize("name", ["", "a b", "a\0b", 'a"b', "a\\b", "ü", "a\n"])
def test_what_json_would_write_otherwise_is_no_name(gates: MessageGates, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid gate name"):
        gates.shut(name)
    with pytest.raises(ValueError, match="not a valid gate name"):
        format_gates([name])


def test_what_comes_back_is_set_aside_too(gates: MessageGates, connection: Connection, publish: Any) -> None:
    """What a worker gives back, what is due, and what a dead worker held."""
    publish(1, 2, gates="a")
    publish(3, gates="a", countdown=0.5)
    reader = Reader(connection)
    taken: list[Any] = []
    reader._consumer.on_message = taken.append
    while len(taken) < 2:
        connection.drain_events(timeout=5)
    gates.shut("a")
    for message in taken:
        message.requeue()
    wait_until(lambda: _drained(connection) or gates.aside() == {"a": 3})


def _drained(connection: Connection) -> bool:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    return False


def test_what_is_set_aside_counts_with_its_queue_and_is_seen_there(
    gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(1, 2, gates="a")
    publish(3, gates="a", priority=9)
    Reader(connection).reads_no_more()
    channel: Any = connection.default_channel
    assert channel.waiting_count("q") == 3
    assert channel.waiting_count("other") == 0
    assert [seen.where for seen in find_messages(channel, "q")] == ["aside"] * 6
    assert not list(find_messages(channel, "other"))
    assert channel._has_queue("q")


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_what_is_set_aside_goes_with_its_queue(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any, how: str
) -> None:
    gates.shut("a")
    publish(1, 2, gates="a")
    Reader(connection).reads_no_more()
    channel: Any = connection.default_channel
    if how == "purge":
        assert channel.queue_purge("q") == 2
    else:
        Queue("q", Exchange("q"), routing_key="q")(channel).declare()
        channel.queue_delete("q", if_empty=True)
        assert gates.aside() == {"a": 2}
        channel.queue_delete("q")
    assert gates.aside() == {}
    assert not broker.client.keys("_aside*")


def test_shut_gates_and_what_they_keep_survive_a_restart_of_redis(
    broker: Broker, gates: MessageGates, start_worker: Start, send: Send, ran: Ran
) -> None:
    broker.client.config_set("appendonly", "yes")
    gates.shut("a", "a reason")
    start_worker()
    for number in range(5):
        send("mark", number, gates="a")
    wait_until(lambda: gates.aside() == {"a": 5})
    broker.restart()
    assert wait_until(gates.shut_names) == {"a": "a reason"}
    send("mark", 5)
    wait_until(lambda: ran() == [5])
    gates.open("a")
    wait_until(lambda: ran() == [5, 0, 1, 2, 3, 4])


def test_an_idle_worker_is_rung_when_a_gate_opens(
    gates: MessageGates, start_worker: Start, send: Send, ran: Ran
) -> None:
    gates.shut("a")
    start_worker()
    for number in range(3):
        send("mark", number, gates="a")
    wait_until(lambda: gates.aside() == {"a": 3})
    time.sleep(0.3)  # it is idle
    allowed_at = time.monotonic()
    gates.allow("a", 1)
    wait_until(lambda: ran() == [0])
    gates.open("a")
    wait_until(lambda: ran() == [0, 1, 2])
    assert time.monotonic() - allowed_at < 2  # by itself it looks every 5 s


def test_a_worker_that_dies_among_them_loses_and_doubles_nothing(
    gates: MessageGates, start_worker: Start, send: Send, ran: Ran
) -> None:
    gates.shut("a")
    worker = start_worker("-c", "2")
    for number in range(200):
        send("mark", number, gates="a")
    wait_until(lambda: gates.aside() == {"a": 200})
    gates.open("a")
    wait_until(lambda: len(ran()) > 10)
    worker.kill()
    start_worker("-c", "2")
    wait_until(lambda: set(ran()) == set(range(200)))
    assert len(ran()) <= 200 + 10  # what ran when it died


def test_a_full_redis_sets_aside_and_goes_on(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    publish(1, gates="a")
    publish(2)
    reader = Reader(connection)
    gates.shut("a")
    broker.client.config_set("maxmemory", "1")
    try:
        reader.reads(2)
        assert gates.aside() == {"a": 1}
    finally:
        broker.client.config_set("maxmemory", "0")


def test_a_wiped_redis_has_all_gates_open(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(1, gates="a")
    reader = Reader(connection)
    reader.reads_no_more()
    broker.client.flushall()
    publish(2, gates="a")
    reader.reads(2)


def test_a_hundred_shut_gates_are_not_asked_for_each_message(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    names = [f"gate{number}" for number in range(100)]
    for number, name in enumerate(names):
        gates.shut(name)
        publish(number, gates=name)
    reader = Reader(connection)
    reader.reads_no_more()
    assert gates.aside() == dict.fromkeys(names, 1)
    broker.client.config_resetstat()
    publish(*range(100, 160), gates="open")
    reader.reads(*range(100, 160))
    counted: Any = broker.client.info("commandstats")
    assert sum(counted.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("exists", "llen")) < 1000


def test_what_is_set_aside_is_drained_to_plain_workers(
    broker: Broker, gates: MessageGates, connection: Connection, publish: Any
) -> None:
    gates.shut("a")
    publish(1, 2, 3, gates="a")
    Reader(connection).reads_no_more()
    connection.close()
    publish(4)
    assert drain(broker) == 0
    assert numbers(broker) == [1, 2, 3, 4]
    assert not broker.client.keys("_aside*") + broker.client.keys("_gates*")
