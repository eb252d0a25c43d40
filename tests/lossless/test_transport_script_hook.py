"""An application's Lua goes along with taking and with acknowledging: done with it in one step, or not at all."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection

from lossless.transport.script_hook import LOOKED, ScriptHook
from tests.lossless.harness import Broker, wait_until
from tests.lossless.test_transport_settlement import take

#: Looks at how often a message of this length was counted, and counts.
RIDER = ScriptHook(
    look="return redis.call('GET', 'seen') .. ' ' .. #raw",
    step="redis.call('INCRBY', KEYS[1], ARGV[1])",
)


@pytest.fixture
def connection(broker: Broker, producer: Celery) -> Iterator[Connection]:
    options = {"dead_after": 1.5, "socket_timeout": 0.5, "rider": RIDER}
    with Connection(broker.url, transport_options=options) as connection:
        yield connection


@pytest.fixture
def publish(producer: Celery) -> Callable[[int], None]:
    def publish(number: int) -> None:
        producer.send_task("any", (number,), queue="q")

    return publish


def test_what_was_found_in_the_taking_comes_with_the_message(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    broker.client.set("seen", "twice")
    publish(1)
    length = broker.client.lindex("q", 0)
    before = time.monotonic()
    (message,) = take(connection, 1)
    at, found = message.properties[LOOKED]
    assert before <= at <= time.monotonic()
    assert found == f"twice {len(length)}"


def test_a_look_that_fails_is_none_and_keeps_no_message(broker: Broker, connection: Connection, publish: Any) -> None:
    broker.client.lpush("seen", "a list")
    publish(1)
    (message,) = take(connection, 1)
    assert message.properties[LOOKED][1] == ""


def test_what_a_sender_says_of_a_look_is_not_believed(broker: Broker, producer: Celery) -> None:
    producer.send_task("any", (1,), queue="q")
    entry = json.loads(broker.client.rpop("q"))
    entry["properties"][LOOKED] = [time.monotonic(), "all is well"]
    broker.client.lpush("q", json.dumps(entry))
    with Connection(broker.url) as plain:
        (message,) = take(plain, 1)
        assert LOOKED not in message.properties


def test_a_step_and_its_acknowledgement_are_one(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    publish(2)
    first, second = take(connection, 2)
    first.channel.bundle_with_ack(first.delivery_tag, ["done"], [5])
    assert broker.client.get("done") is None
    first.ack()
    second.ack()
    wait_until(lambda: not broker.taken())
    assert broker.client.get("done") == b"5"


def test_a_step_that_is_refused_keeps_its_message_and_no_other(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    publish(2)
    first, second = take(connection, 2)
    broker.client.lpush("done", "a list")
    for message, key in ((first, "done"), (second, "well")):
        message.channel.bundle_with_ack(message.delivery_tag, [key], [1])
        message.ack()
    wait_until(lambda: broker.taken() == 1)
    assert broker.client.get("well") == b"1"
    broker.client.delete("done")
    wait_until(lambda: not broker.taken())
    assert broker.client.get("done") == b"1"
    assert broker.client.get("well") == b"1"


def test_a_step_of_what_was_given_back_is_done_alone(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    message.requeue()
    message.channel.bundle_with_ack(message.delivery_tag, ["done"], [1])
    wait_until(lambda: broker.client.get("done") == b"1")
    assert broker.client.llen("q") == 1


def test_a_step_is_done_whatever_becomes_of_its_message(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    message.channel.bundle_with_ack(message.delivery_tag, ["done"], [1])
    message.requeue()
    wait_until(lambda: broker.client.get("done") == b"1")
    wait_until(lambda: broker.client.llen("q") == 1)


@pytest.mark.slow
def test_a_step_and_its_acknowledgement_reach_a_redis_that_was_frozen(
    broker: Broker, connection: Connection, publish: Any
) -> None:
    publish(1)
    (message,) = take(connection, 1)
    broker.server.freeze()
    message.channel.bundle_with_ack(message.delivery_tag, ["done"], [1])
    message.ack()
    broker.server.thaw()
    wait_until(lambda: not broker.taken())
    assert int(broker.client.get("done")) >= 1


def test_a_full_redis_takes_a_step(broker: Broker, connection: Connection, publish: Any) -> None:
    publish(1)
    (message,) = take(connection, 1)
    broker.client.config_set("maxmemory", "1")
    message.channel.bundle_with_ack(message.delivery_tag, ["done"], [1])
    message.ack()
    wait_until(lambda: not broker.taken())
    broker.client.config_set("maxmemory", "0")
    assert broker.client.get("done") == b"1"


@pytest.mark.parametrize("rider", ["lossless.transport.script_hook:LOOKED", 5])
def test_a_rider_that_is_none_is_refused_by_name(broker: Broker, rider: Any) -> None:
    with (
        Connection(broker.url, transport_options={"rider": rider}) as connection,
        pytest.raises(ValueError, match="rider"),
    ):
        connection.channel()
