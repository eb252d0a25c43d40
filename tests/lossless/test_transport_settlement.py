"""What becomes of a taken message is decided once, and reaches Redis whatever happens on the way."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Queue

from lossless import transport
from lossless.transport.message_gates import MessageGates
from tests.lossless.harness import Broker, wait_until
from tests.servers.redis import RedisServer


@pytest.fixture
def connection(broker: Broker, producer: Celery) -> Iterator[Connection]:
    options = {"dead_after": 1.5, "socket_timeout": 0.5}
    with Connection(broker.url, transport_options=options) as connection:
        yield connection


@pytest.fixture
def publish(producer: Celery) -> Callable[..., None]:
    def publish(number: int, queue: str = "q") -> None:
        producer.send_task("any", (number,), queue=queue)

    return publish


def take(connection: Connection, count: int, prefetch: int = 10) -> list[Any]:
    """Consume ``count`` messages."""
    messages: list[Any] = []
    consumer = Consumer(connection, [Queue("q")], on_message=messages.append, accept=["json"], prefetch_count=prefetch)
    consumer.consume()
    while len(messages) < count:
        with contextlib.suppress(*connection.connection_errors):  # as a client of kombu does after a cut
            connection.drain_events(timeout=5)
    return messages


def wire(message: Any) -> Any:
    """A message in kombu's wire form."""
    return json.loads(json.dumps(message._raw))


def numbers(broker: Broker, key: str = "q") -> list[int]:
    """Return the messages of a list, next to run first, as the numbers published."""
    bodies = [json.loads(raw)["body"] for raw in reversed(broker.client.lrange(key, 0, -1))]
    return [json.loads(base64.b64decode(body))[0][0] for body in bodies]


def test_what_is_given_back_to_a_gate_goes_through_before_what_was_never_taken_and_one_before_all(
    broker: Broker, connection: Connection, publish: Any, producer: Celery
) -> None:
    gates = MessageGates(broker.client)
    gates.shut("bank")
    publish(1)
    (first,) = take(connection, 1)
    for number in (2, 3):
        producer.send_task("any", (number,), queue="q", gates="bank")
    publish(4)
    publish(5)
    fourth, fifth = take(connection, 2)  # on the way to it the others were set aside
    for message, ahead in ((first, False), (fourth, False), (fifth, True)):
        given = wire(message)
        given["properties"].setdefault("delivery_info", {})["redelivered"] = True
        message.channel.replace(message.delivery_tag, given, gate="bank", first=ahead)
    wait_until(lambda: not broker.taken())
    assert gates.aside() == {"bank": 5}
    gates.open("bank")
    assert [each.decode()[0][0] for each in take(connection, 5)] == [5, 1, 4, 2, 3]


def test_in_front_of_a_gate_that_is_open_it_is_taken_at_once(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    publish(2)
    (first,) = take(connection, 1, prefetch=1)
    first.channel.replace(first.delivery_tag, wire(first), gate="bank")
    assert [each.decode()[0][0] for each in take(connection, 2)] == [1, 2]


def test_an_ack_removes(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    take(connection, 1)[0].ack()
    wait_until(lambda: not broker.taken())


def test_a_reject_removes_or_puts_back_behind(broker: Broker, connection: Connection, publish: Any) -> None:
    for number in (1, 2, 3):
        publish(number)
    first, second, third = take(connection, 3)
    first.channel.basic_qos(0, 1)
    third.reject()
    publish(4)
    second.requeue()
    wait_until(lambda: numbers(broker) == [4, 2])
    message = json.loads(broker.client.lindex("q", 0))
    assert message["headers"]["redelivered"] is True
    assert "restored" not in message["headers"]
    first.ack()


def test_closing_gives_back_in_order(broker: Broker, connection: Connection, publish: Any) -> None:
    for number in range(5):
        publish(number)
    take(connection, 5)[1].ack()
    connection.release()
    wait_until(lambda: numbers(broker) == [0, 2, 3, 4])
    wait_until(lambda: not broker.client.exists("_taken"))


@pytest.mark.slow
def test_acks_that_meet_a_cut_or_frozen_redis_are_repeated_and_free_their_slot(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    for number in range(6):
        publish(number)
    messages = take(connection, 3, prefetch=3)
    broker.cut()
    for message in messages:
        message.ack()
    messages = take(connection, 3, prefetch=3)
    broker.server.freeze()
    for message in messages:
        message.ack()
    broker.server.thaw()
    wait_until(lambda: not broker.taken() and not broker.client.llen("q"))
    assert messages[0].channel.qos.can_consume()


def test_a_replacement_takes_the_place_in_one_step(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    channel = message.channel
    copy = wire(message)
    tag = copy["properties"]["delivery_tag"]
    copy["headers"]["lost"] = 1
    channel.replace(message.delivery_tag, copy, "other")
    wait_until(lambda: numbers(broker, "other") == [1])
    assert not broker.taken()
    put = json.loads(broker.client.lindex("other", 0))
    assert put["headers"]["lost"] == 1
    assert put["properties"]["delivery_tag"] != tag
    wait_until(lambda: message.delivery_tag not in channel.holder.tags, what="Redis has answered")
    assert not channel.broadcasts.holds(message.delivery_tag)
    message.ack()
    channel.replace(message.delivery_tag, copy, "other")
    time.sleep(0.2)
    assert broker.client.llen("other") == 1


def test_a_replacement_goes_back_to_its_own_queue_and_list_past_its_exchange(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    sent = json.loads(broker.client.rpop("q"))
    sent["properties"] |= {"priority": 6, "delivery_info": {"exchange": "news", "routing_key": "sport.#"}}
    broker.client.lpush("q\x06\x166", json.dumps(sent))
    (message,) = take(connection, 1)
    message.channel.replace(message.delivery_tag, wire(message))
    wait_until(lambda: numbers(broker, "q\x06\x166") == [1])
    put = json.loads(broker.client.lindex("q\x06\x166", 0))
    assert put["properties"]["delivery_info"] == {"exchange": "news", "routing_key": "sport.#"}
    assert broker.client.keys("q*") == [b"q\x06\x166"]
    broker.client.delete("q\x06\x166")


def test_a_replacement_on_a_closed_channel_reaches_redis(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    broker.server.stop()
    message.channel.replace(message.delivery_tag, wire(message), "other")
    connection.collect()
    broker.server.start()
    wait_until(lambda: numbers(broker, "other") == [1])
    wait_until(lambda: not broker.taken())


def test_a_replacement_may_wait(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    copy = wire(message)
    message.channel.replace(message.delivery_tag, copy, "other", eta=time.time() + 1)
    wait_until(lambda: broker.client.zcard("_waiting.other") == 1)
    assert not broker.taken()
    wait_until(lambda: numbers(broker, "other") == [1], 3)


def test_a_replacement_of_what_was_given_to_others_puts_nothing(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    (message,) = take(connection, 1)
    copy = wire(message)
    owner = next(broker.client.scan_iter("_taken.*"))
    broker.client.delete(owner, "_taken")  # as a sweep does
    message.channel.replace(message.delivery_tag, copy, "other")
    wait_until(lambda: not message.channel.holder.backlog)
    assert not broker.client.llen("other")


def test_a_replacement_is_repeated_until_redis_answers(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    copy = wire(message)
    broker.server.stop()
    message.channel.replace(message.delivery_tag, copy, "other")
    broker.server.start()
    wait_until(lambda: numbers(broker, "other") == [1])
    assert not broker.taken()


def test_a_list_of_the_wrong_type_keeps_the_message_held(broker: Broker, connection: Connection, publish: Any) -> None:
    broker.client.set("other", "no list")
    publish(1)
    (message,) = take(connection, 1)
    copy = wire(message)
    message.channel.replace(message.delivery_tag, copy, "other")
    time.sleep(0.5)
    assert broker.taken() == 1
    broker.client.delete("other")
    wait_until(lambda: numbers(broker, "other") == [1])


def test_what_a_lost_answer_took_comes_back(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    holder = message.channel.holder
    broker.client.hset(f"_taken.{holder.owner}", "99", b"q\0" + b'{"unheard": 1}')
    holder.compare()
    assert broker.client.lrange("q", 0, -1) == [b'{"unheard": 1}']
    assert broker.taken() == 1
    broker.client.delete("q")
    message.ack()


def test_getting_one_message_without_consuming(broker: Broker, connection: Connection, publish: Any) -> None:
    channel: Any = connection.default_channel
    assert channel.basic_get("q") is None
    publish(1)
    message = channel.basic_get("q")
    assert broker.taken() == 1
    message.ack()
    wait_until(lambda: not broker.taken())
    publish(2)
    assert channel.basic_get("q", no_ack=True) is not None
    assert broker.taken() == 0


def test_a_consumer_without_acknowledgement_is_no_owner(broker: Broker, connection: Connection, publish: Any) -> None:
    got: list[Any] = []
    publish(1)
    with Consumer(connection, [Queue("q")], on_message=got.append, no_ack=True):
        while not got:
            connection.drain_events(timeout=5)
    assert not broker.client.exists("_taken")


def test_without_an_event_loop_a_lost_connection_is_raised_as_kombu_does(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    take(connection, 1)[0].ack()
    broker.cut()

    def drain() -> None:
        for _ in range(20):
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=0.2)

    with pytest.raises(connection.connection_errors):
        drain()
    publish(2)
    assert len(take(connection, 1)) == 1


def test_scripts_that_redis_forgot_are_loaded_again(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    take(connection, 1)[0].ack()
    wait_until(lambda: not broker.taken())
    broker.client.script_flush()
    publish(2)
    take(connection, 1)[0].ack()
    wait_until(lambda: not broker.taken())


@pytest.mark.slow
def test_dead_owners_whose_messages_are_many_are_emptied(broker: Broker, connection: Connection, publish: Any) -> None:
    dead = {str(number): b"q\0" + json.dumps({"n": number}).encode() for number in range(1, 1201)}
    broker.client.hset("_taken", "gone:1", 5)
    broker.client.hset("_taken.gone:1", mapping={"@": 1, **dead})
    channel: Any = connection.channel()
    channel._hold()
    wait_until(lambda: broker.client.llen("q") == 1200, 10)
    assert not broker.client.exists("_taken.gone:1")
    assert json.loads(broker.client.rpop("q")) == {"n": 1}


def test_the_first_decision_stands_while_redis_is_away(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    copy = wire(message)
    broker.server.stop()
    message.channel.replace(message.delivery_tag, copy, "other")
    message.ack()
    broker.server.start()
    wait_until(lambda: numbers(broker, "other") == [1])
    wait_until(lambda: not broker.taken())


def test_risks_are_named(broker: Broker, connection: Connection) -> None:
    assert transport.risks(connection) == []
    broker.client.config_set("maxmemory-policy", "allkeys-lru")
    assert transport.eviction_risk(connection) is None
    assert "as soon as a maxmemory is set" in transport.risks(connection)[0]
    broker.client.config_set("maxmemory", "1gb")
    assert "allkeys-lru: a full Redis evicts queued messages" in str(transport.eviction_risk(connection))
    assert transport.risks(connection) == [transport.eviction_risk(connection)]
    broker.client.config_set("maxmemory", 0)
    broker.client.config_set("maxmemory-policy", "noeviction")


def test_a_master_that_takes_writes_without_its_replicas_is_a_risk(broker: Broker, connection: Connection) -> None:
    with RedisServer(appendfsync="everysec") as replica, replica.client() as client:
        client.replicaof("127.0.0.1", str(broker.server.port))
        wait_until(lambda: broker.client.info("replication")["connected_slaves"] == 1)
        (risk,) = transport.risks(connection)
        assert risk.startswith("min-replicas-to-write is 0, and this master has 1 replica: ")
        broker.client.config_set("min-replicas-to-write", 1)
        assert transport.risks(connection) == []
        broker.client.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize("options", [{"dead_after": 0}, {"ack_emulation": False}, {"take_limit": -1}])
def test_options_that_cannot_be_are_refused(broker: Broker, producer: Celery, options: Any) -> None:
    (name,) = options
    with Connection(broker.url, transport_options=options) as connection, pytest.raises(ValueError, match=name):
        connection.channel()
