"""What a queue of the bridge's messages weighs, and what these carry, on a real Redis."""

import json
import time
from typing import Any

import kombu
import pytest

from bridge.formats.celery_header import LISTS, header_of, to_header
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.delivery_row import DeliveryRow
from lossless.transport.queue_inspection import SAMPLES, weigh_queue
from tests.lossless.conftest import broker, transport_in_use
from tests.lossless.harness import Broker

__all__ = ["broker", "transport_in_use"]


def row(offset: int, size: int = 50) -> DeliveryRow:
    # Quotes and brackets of a value do not look like the header's.
    value = b'"timestamps": [1, 2, 3], "task": "other"' + b"x" * size
    return DeliveryRow(offset, None if offset % 2 else 1_700_000_000_000, b"k", value, [("h", b"[1], [2]")])


def handed(count: int, size: int = 50) -> dict[str, Any]:
    return header_of("orders", 0, "c", "g", "t", None, [row(offset, size) for offset in range(count)])


def sent_again(count: int) -> dict[str, Any]:
    headers = (("a", b"b"), ("c", b"d"))
    messages = [Message("orders", 0, offset, b"k", b"v", headers, origin="c g t") for offset in range(count)]
    deliveries = tuple(Delivery(each, "work", runs=1, error="x], [y") for each in messages)
    return to_header(Batch("work", "orders", 0, deliveries, "c", "g", "t"))


def put(broker: Broker, header: dict[str, Any] | None, task: str = "work") -> None:
    headers = {"lang": "py", "task": task, "id": "1", **({} if header is None else {"kafka": header})}
    broker.push({"body": "W10=", "headers": headers, "properties": {"delivery_info": {}}})


def weighed(broker: Broker, **options: Any) -> Any:
    with kombu.Connection(broker.url) as connection:
        return weigh_queue(connection.default_channel, "celery", LISTS, **options)


@pytest.mark.parametrize(
    ("header", "count"),
    [(handed(1), 1), (handed(2), 2), (handed(500), 500), (sent_again(1), 1), (sent_again(7), 7), (None, 1)],
    ids=["one", "two", "many", "one sent again", "several sent again", "none of ours"],
)
def test_each_message_of_a_short_queue_is_counted_as_what_it_carries(broker: Broker, header: Any, count: int):
    put(broker, header)
    put(broker, handed(3), "another")
    found = weighed(broker)
    assert sorted(found.samples) == sorted([("work", count), ("another", 3)])
    assert found.size >= broker.client.strlen("nothing") + len(json.dumps(header))


def test_of_a_long_queue_some_are_looked_at_all_over_it(broker: Broker):
    for number in range(320):
        put(broker, handed(2), f"part{number // 20}")
    found = weighed(broker)
    assert len(found.samples) == SAMPLES
    assert {task for task, _ in found.samples} == {f"part{number}" for number in range(16)}


def test_what_waits_and_what_is_no_message_weighs_too_and_counts_as_one(broker: Broker):
    assert weighed(broker) == (0, [])
    broker.push(b"no message")
    broker.push(b"\xff\x00" * 10_000)
    found = weighed(broker)
    assert list(found.samples) == [("", 1), ("", 1)]
    assert found.size > 20_000
    broker.client.zadd("_waiting.celery", {b"celery\0" + b"z" * 50_000: time.time() + 60})
    assert weighed(broker).size > 70_000


def test_who_may_not_ask_is_told_nothing(broker: Broker):
    put(broker, handed(3))
    client = broker.client
    rights: dict[str, Any] = {"categories": ["+@all"], "commands": ["-memory|usage"], "keys": ["*"], "channels": ["*"]}
    client.acl_setuser("light", enabled=True, nopass=True, **rights)
    try:
        with kombu.Connection(broker.url.replace("//", "//light:x@")) as connection:
            assert weigh_queue(connection.default_channel, "celery", LISTS) is None
    finally:
        client.acl_deluser("light")


def test_to_weigh_a_queue_of_large_batches_takes_redis_a_few_milliseconds(broker: Broker):
    for _ in range(60):
        put(broker, handed(500, 1_500))
    took = []
    with kombu.Connection(broker.url) as connection:
        channel = connection.default_channel
        for _ in range(7):
            began = time.perf_counter()
            found = weigh_queue(channel, "celery", LISTS)
            took.append(time.perf_counter() - began)
    assert found is not None
    assert 1 <= len(found.samples) <= 3, "a megabyte, whatever there is"
    assert {count for _, count in found.samples} == {500}
    assert min(took) < 0.05
