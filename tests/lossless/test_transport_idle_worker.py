"""An idle worker wakes up at once for whatever comes, and sets aside what is no message."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lossless.harness import Broker, Worker, wait_until, worker
from tests.servers.redis import RedisServer

Send = Callable[..., Any]
Ran = Callable[[], list[int]]


@pytest.fixture(scope="module")
def idle_worker(mortal_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with worker(mortal_redis.url, tmp_path_factory.mktemp("idle"), "-Q", "a,b,c") as idle:
        yield idle


@pytest.fixture(autouse=True)
def idle(idle_worker: Worker, broker: Broker) -> None:
    broker.notes.flushdb()


@pytest.mark.parametrize("priority", [0, 9])
@pytest.mark.parametrize("queue", ["a", "b", "c"])
def test_an_idle_worker_wakes_up_for_every_queue_and_priority(send: Send, ran: Ran, queue: str, priority: int) -> None:
    at = time.monotonic()
    send("mark", 1, queue=queue, priority=priority)
    wait_until(lambda: ran() == [1], 5)
    assert time.monotonic() - at < 0.5


WRONG_BODY = {
    "body": "abc",
    "headers": {},
    "properties": {"delivery_tag": "1", "delivery_info": {"routing_key": "a"}, "body_encoding": "base64"},
}


@pytest.mark.parametrize(
    "entry", [b"not json", b"7", b"{}", b'{"body": "e30=", "headers": {}}', json.dumps(WRONG_BODY).encode()]
)
def test_an_entry_that_is_no_message_is_set_aside(broker: Broker, send: Send, ran: Ran, entry: bytes) -> None:
    broker.client.lpush("a", entry)
    wait_until(lambda: broker.client.lrange("_undecodable", 0, -1) == [entry])
    send("mark", 1, queue="a")
    wait_until(lambda: ran() == [1])
    wait_until(lambda: not broker.taken())
