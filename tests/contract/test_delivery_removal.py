"""Deliveries that are removed are in no message of the queue any more, and those beside them stay, in their place."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import redis
from celery import Celery
from kombu.utils.json import dumps

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.delivery_removal import DeliveryRemoval
from bridge.formats.celery_header import HEADER, columns_of, from_header, to_header, to_joining
from bridge.formats.delivery import Batch, Delivery, Message
from bridge.formats.delivery_row import DeliveryRow
from lossless import transport
from lossless.transport.storage_layout import store_message

HANDLER = "orders.handlers.charge"


@pytest.fixture
def client(any_redis_server: str) -> Iterator[Any]:
    with redis.Redis.from_url(any_redis_server) as opened:
        opened.flushall()
        yield opened


@pytest.fixture
def removal(any_redis_server: str, client: Any) -> Iterator[DeliveryRemoval]:
    """The removal of what has the key `ann`."""
    transport.use()
    with (
        Celery("removal", broker=any_redis_server, set_as_current=False) as app,
        closing(CeleryBroker(app)) as broker,
    ):
        yield DeliveryRemoval(broker, lambda delivery: delivery.message.key == b"ann")


def batch(*keys: str) -> Batch:
    deliveries = (
        Delivery(Message("orders", 0, offset, key.encode(), b"v%d" % offset, (("h", b"1"),), 5), HANDLER, runs=1)
        for offset, key in enumerate(keys)
    )
    return Batch(HANDLER, "orders", 0, tuple(deliveries), "kafka", "bridge", "log", "key")


def message(header: dict[str, Any], **headers: Any) -> bytes:
    whole = {"task": HANDLER, "id": "x", **headers, HEADER: header}
    return str(
        dumps({"body": "W10=", "headers": whole, "properties": {"delivery_tag": f"{time.monotonic()}"}})
    ).encode()


def as_columns(made: Batch) -> dict[str, Any]:
    """The header as the bridge writes it at first."""
    header = {name: value for name, value in to_header(made).items() if name != "messages"}
    return header | {
        "columns": columns_of([DeliveryRow.from_delivery(each)._replace(more=None) for each in made.deliveries])
    }


def keys_of(raw: bytes) -> list[str]:
    found = json.loads(raw.rpartition(b"\0")[2])
    return [(each.message.key or b"").decode() for each in from_header(HANDLER, found["headers"][HEADER]).deliveries]


def test_a_message_loses_the_chosen_deliveries_and_keeps_the_others_with_all_that_is_known_of_them(
    removal: DeliveryRemoval, client: Any
):
    made = batch("ann", "bob", "ann", "cy")
    client.lpush("q", message(to_header(made)), message(as_columns(made)), message(to_header(batch("ann", "ann"))))
    client.lpush("q", message(to_header(batch("bob"))))
    found = removal.find(["q"])
    assert found is not None
    assert (len(found["queued"]), found["taken"]) == (3, [])
    assert removal.remove(["q"]) == 3
    kept = client.lrange("q", 0, -1)
    assert [keys_of(raw) for raw in kept] == [["bob"], ["bob", "cy"], ["bob", "cy"]]
    left = from_header(HANDLER, json.loads(kept[2])["headers"][HEADER])
    assert left == replace(made, deliveries=(made.deliveries[1], made.deliveries[3]))
    assert removal.find(["q"]) == {"queued": [], "taken": []}
    assert removal.remove(["q"]) == 0


def test_a_message_that_waits_keeps_its_time_and_its_number_of_deliveries(removal: DeliveryRemoval, client: Any):
    made = batch("ann", "bob", "cy")
    header, joins = to_joining(made, to_header(made), 9)
    client.zadd("_waiting.q", {store_message("q", message(header, joins=joins)): 4_000_000_000.5})
    client.zadd("_waiting.q", {store_message("q", message(to_header(batch("ann")))): 4_000_000_000.5})
    assert removal.remove(["q"]) == 2
    ((kept, due),) = client.zrange("_waiting.q", 0, -1, withscores=True)
    assert (kept.partition(b"\0")[0], keys_of(kept), due) == (b"q", ["bob", "cy"], 4_000_000_000.5)
    assert b'], "joined": "0002"}' in kept


def test_what_a_gate_has_set_aside_is_removed_too(removal: DeliveryRemoval, client: Any):
    client.sadd("_aside", "gate\0q")
    client.rpush("_aside.gate\0q", message(to_header(batch("bob", "ann"))), message(to_header(batch("ann"))))
    assert removal.remove(["q"]) == 2
    assert [keys_of(raw) for raw in client.lrange("_aside.gate\0q", 0, -1)] == [["bob"]]


def test_what_a_worker_has_taken_and_what_is_no_delivery_stay(removal: DeliveryRemoval, client: Any):
    client.hset("_taken", "owner", 1)
    taken = message(to_header(batch("ann")))
    client.hset("_taken.owner", "tag", store_message("q", taken))
    client.lpush("q", b"ann", b'{"headers": {"kafka": "ann"}}', b"[]")
    assert removal.remove(["q"]) == 0
    found = removal.find(["q"])
    assert found is not None
    assert (found["queued"], [each.identity for each in found["taken"]]) == ([], [f"orders-0-0:{HANDLER}"])
    assert client.hget("_taken.owner", "tag") == store_message("q", taken)
    assert client.llen("q") == 3


def test_redis_writes_its_files_anew(removal: DeliveryRemoval, client: Any):
    assert removal.rewrite_files() == ""
    done = client.info("persistence")
    last = "aof_last_rewrite_time_sec" if done["aof_enabled"] else "rdb_last_bgsave_time_sec"
    assert done[last] >= 0
