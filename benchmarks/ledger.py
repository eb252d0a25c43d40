"""What the ledger costs: bytes per delivery (``MEMORY USAGE``), and deliveries per second on one core."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import redis

from bridge.ledger.fate_rules import UNSETTLED, Fate
from bridge.ledger.ledger_client import Ledger
from bridge.ledger.ledger_layout import Account
from bridge.ledger.ledger_scripts import Mark, Push
from bridge.partitions.ordering import DeliveryQueue, Order, make_delivery_queue
from bridge.partitions.safe_offset import OffsetTracker
from tests.servers.redis import RedisServer

BATCH = 200
TOTAL = 400_000


@contextmanager
def _clean(client: redis.Redis, url: str) -> Iterator[Ledger]:
    client.flushdb()
    ledger = Ledger(url, "cJkMHIp2QUK5nxJ8V2qXkw", "bridge")
    yield ledger
    ledger.close()


def _account(partition: int) -> Account:
    return Account("orders.handlers.charge", "orders", "mnB7bUNNTFuKyAPSx1zQ2w", partition)


def _timed(name: str, number: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:<58} {number / wall:>12,.0f}/s {cpu / number * 1e6:>8.2f} us of Python each")


def memory(client: redis.Redis, url: str) -> None:
    """Fill pages batch by batch, as a bridge and its workers do, and ask Redis what they take."""
    for each in (1_000, 5_000, 20_000, 65_536, 200_000):
        with _clean(client, url) as ledger:
            for first in range(0, each, BATCH):
                offsets = range(first, min(first + BATCH, each))
                ledger.write([Push(_account(0), offsets, "celery", [b"entry"])])
                ledger.write([Mark(_account(0), offsets, Fate.DONE)])
            client.delete("celery")
            used = {key: client.memory_usage(key, samples=0) or 0 for key in client.scan_iter()}
            pages = sum(size for key, size in used.items() if key.rpartition(b":")[2].isdigit())
            print(
                f"{each:>8,} messages of a partition: {pages / each:.3f} bytes each in pages, "
                f"{sum(used.values()) / each:.3f} with every other key"
            )


def speed(client: redis.Redis, url: str) -> None:
    """Hand off, settle and read, in the sizes that a bridge and a worker use."""
    entry = b"x" * 60_000
    account = _account(1)
    with _clean(client, url) as ledger:

        def hand_off(entries: Callable[[range], list[bytes]]) -> None:
            for first in range(0, TOTAL, BATCH):
                offsets = range(first, first + BATCH)
                ledger.write([Push(account, offsets, "celery", entries(offsets))])
                if first % 20_000 == 0:
                    client.delete("celery")

        _timed("hand off, one 60 kB entry for 200", TOTAL, lambda: hand_off(lambda _: [entry]))
        _timed("settle 200 in a row", TOTAL, lambda: _settle(ledger, account, 1))
        ledger.forget(account, 0, TOTAL)
        _timed("hand off, 200 entries of 700 B", TOTAL, lambda: hand_off(lambda o: [entry[:700]] * len(o)))
        _timed("settle 200, every 7th", TOTAL // 7, lambda: _settle(ledger, account, 7))
        _timed("settle one by one", 5_000, lambda: _one_by_one(ledger, account))
        ledger.write([Mark(account, range(1_000_000), Fate.DONE)])
        _timed("skip a million settled", 1_000_000, lambda: ledger.find(account, UNSETTLED, 0, 1_000_000))
        _timed("count a million", 1_000_000, lambda: ledger.count(account, 0, 999_999))


def _settle(ledger: Ledger, account: Account, step: int) -> None:
    for first in range(0, TOTAL, BATCH * step):
        ledger.write([Mark(account, list(range(first, first + BATCH * step, step)), Fate.DONE)])


def _one_by_one(ledger: Ledger, account: Account) -> None:
    for offset in range(5_000):
        ledger.fates_of([(account, [offset])])
        ledger.write([Mark(account, [offset], Fate.DONE)])


def bridge(client: redis.Redis, url: str) -> None:
    """Lanes, offsets and ledger together: what a bridge does besides Kafka and Celery, batch=200."""
    draw = random.Random(1)
    orders: list[tuple[Order, int]] = [("none", 0), ("key", 1_000), ("key", 10), ("partition", 0)]
    for order, keys in orders:
        with _clean(client, url) as ledger:
            known = [draw.randrange(keys).to_bytes(4) if keys else None for _ in range(TOTAL)]
            name = f"lanes + offsets + ledger, order={order}{f', {keys} keys' if keys else ''}"
            _timed(
                name,
                TOTAL,
                partial(_pass, ledger, client, order, known),
            )


def _pass(ledger: Ledger, client: redis.Redis, order: Order, keys: list[bytes | None]) -> None:
    account = _account(2)
    lanes = make_delivery_queue(order, [account.handler], [BATCH])
    offsets = OffsetTracker(0, [account.handler], commit="completion", ordered=order != "none")
    for first in range(0, TOTAL, 2_000):
        polled = list(range(first, first + 2_000))
        offsets.read(polled)
        lanes.add(polled, keys[first : first + 2_000])
        _hand(ledger, account, lanes, offsets)
        while lanes.waiting > 20_000 or (first + 2_000 >= TOTAL and lanes.waiting):
            _learn(ledger, account, lanes, offsets)
            _hand(ledger, account, lanes, offsets)
        client.delete("celery")
        offsets.safe()


def _hand(ledger: Ledger, account: Account, lanes: DeliveryQueue, offsets: OffsetTracker) -> None:
    while groups := lanes.take():
        for group in groups:
            (written,) = ledger.write([Push(account, group.offsets, "celery", [b"entry"])])
            offsets.mark(account.handler, written.changed, Fate.HANDED)
            ledger.write([Mark(account, group.offsets, Fate.DONE)])  # the worker
        _learn(ledger, account, lanes, offsets)


def _learn(ledger: Ledger, account: Account, lanes: DeliveryQueue, offsets: OffsetTracker) -> None:
    if not offsets.size:
        return
    found = ledger.fates(account, offsets.window.start, offsets.window.stop - 1)
    for change in offsets.take_in_fates(account.handler, offsets.window.start, found):
        lanes.settle(account.handler, change.offsets, change.fate)
    offsets.safe()


def main() -> None:
    """On a redis-server of its own."""
    with RedisServer(appendfsync="everysec") as server, server.client() as client:
        for part in (memory, speed, bridge):
            part(client, server.url)
