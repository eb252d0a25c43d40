"""Processes killed and servers stopped under load: nothing is lost, and nobody restarts anything else."""

import time
from functools import partial

import pytest

from tests.acceptance import kcat
from tests.processes import Stack, eventually
from tests.servers.kafka import KafkaServer
from tests.servers.redis import RedisServer

#: So few that one bridge may hand off all of them before a worker is there: 1,000 messages at most wait then.
RECORDS = 960


@pytest.fixture
def shop(mortal_stack: Stack) -> Stack:
    mortal_stack.environ["HANDLERS"] = "tests.handlers.shop"
    mortal_stack.make_topics("orders", "stream", partitions=4)
    return mortal_stack


def produce(stack: Stack, numbers: range) -> None:
    kcat.produce(stack.kafka, stack.topic("stream"), [str(number).encode() for number in numbers])


def handled(stack: Stack) -> set[int]:
    return {run.value for run in stack.runs("stream")}


def all_handled(stack: Stack, count: int, within: float = 90.0) -> None:
    eventually(lambda: len(handled(stack)) >= count, within, f"{count} records are handled")
    assert handled(stack) == set(range(count))


def more_wait(shop: Stack, count: int) -> bool:
    return shop.waiting() > count


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_bridge_killed_six_times_while_it_hands_off_loses_nothing(shop: Stack):
    shop.environ |= {"KAFKA_SESSION_TIMEOUT_MS": "1500", "KAFKA_HEARTBEAT_INTERVAL_MS": "300"}
    for part in range(6):
        # What one bridge has handed off the next leaves alone: each gets records of its own.
        produce(shop, range(part * RECORDS // 6, (part + 1) * RECORDS // 6))
        before = shop.waiting()
        bridge = shop.bridge(wait=False)
        eventually(partial(more_wait, shop, before), 30, "it hands off")
        bridge.kill()
    shop.bridge(wait=False)
    eventually(lambda: shop.committed("stream") == RECORDS, 30)
    shop.worker()
    all_handled(shop, RECORDS)
    assert shop.dead_letters("stream") == []


def kafka_stopped(shop: Stack, server: KafkaServer, seconds: float) -> None:
    bridge, worker = shop.bridge(), shop.worker()
    produce(shop, range(500))
    eventually(lambda: len(handled(shop)) > 50, 30)
    server.stop()
    time.sleep(seconds)
    server.start()
    produce(shop, range(500, 1_000))
    all_handled(shop, 1_000)
    eventually(bridge.ready, 30)
    assert (bridge.exit_code, worker.exit_code) == (None, None)
    eventually(lambda: shop.committed("stream") == 1_000, 30)


def redis_stopped(shop: Stack, server: RedisServer, seconds: float) -> None:
    bridge = shop.bridge()
    produce(shop, range(500))
    eventually(lambda: shop.waiting() == 500, 30)
    server.stop()
    produce(shop, range(500, 1_000))
    time.sleep(seconds)
    assert bridge.get("/readyz")[0] == 503
    server.start()
    eventually(lambda: shop.committed("stream") == 1_000, 30)
    eventually(bridge.ready, 10)
    assert bridge.exit_code is None
    shop.worker()
    all_handled(shop, 1_000)


@pytest.mark.slow
def test_kafka_stopped_for_a_while_loses_nothing(shop: Stack, mortal_kafka: KafkaServer):
    kafka_stopped(shop, mortal_kafka, 3)


@pytest.mark.slow
def test_redis_stopped_for_a_while_loses_nothing(shop: Stack, mortal_redis: RedisServer):
    redis_stopped(shop, mortal_redis, 3)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_kafka_stopped_for_30_s_loses_nothing(shop: Stack, mortal_kafka: KafkaServer):
    kafka_stopped(shop, mortal_kafka, 30)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_redis_stopped_for_30_s_loses_nothing(shop: Stack, mortal_redis: RedisServer):
    redis_stopped(shop, mortal_redis, 30)
