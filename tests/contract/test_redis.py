"""What the project needs of a Redis, held by the embedded Valkey and by a real Redis alike."""

import threading
import uuid
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest
import redis
from kombu import Connection, Producer, Queue
from kombu.exceptions import EncodeError

from lossless.transport.broadcast import BroadcastSubscriber


@pytest.fixture
def client(any_redis_server: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(any_redis_server) as client:
        yield client


@pytest.fixture
def connection(any_redis_server: str) -> Iterator[Connection]:
    with Connection(any_redis_server) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    """A key or queue that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


def declare(connection: Connection, name: str) -> None:
    Queue(name, routing_key=name)(connection.default_channel).declare()


def drain(connection: Connection, name: str) -> list[Any]:
    """Take and acknowledge everything that the queue holds."""
    taken: list[Any] = []
    with connection.SimpleQueue(name) as queue:
        while True:
            try:
                message = queue.get(block=False)
            except Empty:
                return taken
            taken.append(message.payload)
            message.ack()


def test_it_keeps_an_append_only_file_and_evicts_nothing(client):
    assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_kombu_gets_back_what_it_sent(connection, name):
    with connection.SimpleQueue(name) as queue:
        queue.put({"größe": [1, None, "x"]})
    assert drain(connection, name) == [{"größe": [1, None, "x"]}]


def test_a_message_is_unacknowledged_until_it_is_acknowledged(connection, client, name):
    with connection.SimpleQueue(name) as queue:
        queue.put("one")
        message = queue.get(timeout=5)
        assert client.llen(name) == 0
        message.requeue()
        assert client.llen(name) == 1
        queue.get(timeout=5).ack()
    # What is not acknowledged goes back when the connection closes.
    connection.close()
    assert client.llen(name) == 0


def test_kombu_pipelines_a_batch_in_order(connection, client, name):
    declare(connection, name)
    producer = Producer(connection.default_channel)
    before = client.info("stats")["total_commands_processed"]
    with producer.batch(max_size=1000) as batch:  # type: ignore[attr-defined]
        for number in range(500):
            producer.publish(number, exchange="", routing_key=name)
        assert client.llen(name) == 0, "nothing leaves before the flush"
        batch.flush()
    assert client.info("stats")["total_commands_processed"] - before < 1000
    assert drain(connection, name) == list(range(500))


def test_a_batch_that_fails_sends_nothing(connection, client, name):
    declare(connection, name)
    producer = Producer(connection.default_channel)

    def publish(*bodies: object) -> None:
        with producer.batch():  # type: ignore[attr-defined]
            for body in bodies:
                producer.publish(body, exchange="", routing_key=name)

    with pytest.raises(EncodeError):
        publish("never", object())
    assert client.llen(name) == 0


def test_blmove_takes_into_another_list_at_once(client, name):
    client.lpush(name, "first", "second")
    assert client.blmove(name, f"{name}.taken", 1, "RIGHT", "LEFT") == b"first"
    assert client.lrange(f"{name}.taken", 0, -1) == [b"first"]
    assert client.blmove(f"{name}.empty", f"{name}.taken", 0.05, "RIGHT", "LEFT") is None


def test_a_script_moves_what_is_due_in_one_step(client, name):
    client.zadd(name, {"due": 1, "later": 9})
    move = client.register_script(
        "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])"
        " for _, member in ipairs(due) do"
        "  redis.call('LPUSH', KEYS[2], member) redis.call('ZREM', KEYS[1], member) end"
        " return #due"
    )
    assert move(keys=[name, f"{name}.queue"], args=[5]) == 1
    assert client.lrange(f"{name}.queue", 0, -1) == [b"due"]
    assert client.zrange(name, 0, -1, withscores=True) == [(b"later", 9.0)]


def test_a_pipeline_in_multi_is_all_or_nothing(client, name):
    client.set(name, "text")
    with client.pipeline(transaction=True) as pipeline, pytest.raises(redis.ResponseError):
        pipeline.set(f"{name}.other", "1").execute_command("NO-SUCH-COMMAND").execute()
    assert client.get(f"{name}.other") is None


def test_two_bits_of_a_page_are_set_and_counted_without_touching_their_neighbours(client, name):
    client.setrange(name, 1, b"\xff\xff")
    client.bitfield(name).set("u2", "#3", 2).execute()
    assert client.get(name) == b"\x02\xff\xff"
    assert client.bitcount(name) == 17


def test_a_published_message_is_waited_for_as_long_as_it_is_asked_for(client: redis.Redis, name: str) -> None:
    published = BroadcastSubscriber(client.connection_pool)
    with published:
        published.subscribe(name)
        assert published.get_message(timeout=5) is not None  # that it is subscribed
        sending = threading.Timer(0.2, client.publish, (name, b"it"))
        sending.start()
        found = published.get_message(timeout=5)
        sending.join()
    assert found is not None
    assert found["data"] == b"it"
