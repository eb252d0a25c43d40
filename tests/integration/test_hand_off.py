"""What is handed off, committed and held back, while bridges come and go."""

import json
import time
from typing import Any

import pytest

from tests.processes import Stack, eventually
from tests.servers.redis import RedisServer


def task_ids(coordinates: list[str]) -> set[str]:
    return {f"{place}:tests.handlers.simple.work" for place in coordinates}


@pytest.mark.slow
def test_a_paused_bridge_says_why_and_goes_on_when_the_queue_is_short(stack: Stack):
    stack.make_topics("orders", partitions=4)
    bridge = stack.bridge(CELERY_CONFIG_MODULE="tests.handlers.low_marks")
    coordinates = stack.produce("orders", *range(60))
    reason = f"queue {stack.queue}"
    eventually(lambda: bridge.metric("bridge_partition_paused", reason=reason) == 4, 15, "all are paused")
    coordinates += stack.produce("orders", *range(40))
    text = bridge.says("messages (paused above 50, resumed below 20)")
    # It may have looked when most of the first were there.
    held = stack.waiting()
    assert f"paused: queue {stack.queue!r} holds {held} messages" in text
    assert 50 < held <= 60
    time.sleep(1)
    assert stack.waiting() == held
    assert bridge.get("/healthz")[0] == 200
    with stack.redis() as client:
        taken = [json.loads(raw)["headers"]["id"] for raw in client.rpop(stack.queue, 45)]
    eventually(lambda: stack.waiting() == 55, 15, "it goes on")
    bridge.says(f"resumed: queue {stack.queue!r}")
    with stack.redis() as client:
        taken += [json.loads(raw)["headers"]["id"] for raw in client.rpop(stack.queue, 55)]
    eventually(lambda: bridge.metric("bridge_partition_paused") == 0, 15)
    assert sorted(taken) == sorted(task_ids(coordinates))
    assert text.count("paused: queue") == 1


def test_only_what_the_broker_has_confirmed_is_committed(stack: Stack, own_redis: RedisServer):
    stack.make_topics("orders", partitions=4)
    stack.broker = own_redis.url
    bridge = stack.bridge(CELERY_BROKER_URL=own_redis.url)
    coordinates = stack.produce("orders", *range(20))
    eventually(lambda: stack.committed("orders") == 20, 15)
    own_redis.stop()
    coordinates += stack.produce("orders", *range(30))
    text = bridge.says("consumption pauses until they can")
    eventually(lambda: bridge.get("/readyz")[0] == 503, 5)
    assert "cannot be handed off" in bridge.get("/readyz")[1]
    time.sleep(2.5)
    assert stack.committed("orders") == 20
    assert bridge.get("/healthz")[0] == 200
    bridge.kill()
    own_redis.start()
    stack.bridge(CELERY_BROKER_URL=own_redis.url)
    eventually(lambda: stack.committed("orders") == 50, 30)
    assert task_ids(coordinates) == set(stack.queued_ids())
    assert text.count("cannot be handed off") == 1


def test_two_bridges_share_the_partitions_and_nothing_is_lost_when_one_goes(stack: Stack):
    stack.make_topics("orders", partitions=4)
    first = stack.bridge()
    coordinates = stack.produce("orders", *range(200))
    second = stack.bridge()

    eventually(lambda: "revoked: " in first.text and "assigned: " in second.text, 20)
    for number in range(10):
        coordinates += stack.produce("orders", *range(50))
        if number == 5:
            assert first.terminate() == 0
    eventually(lambda: stack.committed("orders") == 700, 30)
    queued = stack.queued_ids()
    assert set(queued) == task_ids(coordinates)
    # Both leave and join in order: what was handed off was committed before the partition went.
    assert len(queued) == 700
    assert "no longer ours" not in first.text + second.text


@pytest.mark.slow
def test_killed_several_times_in_a_row_a_bridge_is_back_at_work_within_30_s(stack: Stack):
    stack.make_topics("orders", partitions=4)
    # The defaults: a killed member is noticed after its session timeout.
    defaults: dict[str, Any] = {"KAFKA_SESSION_TIMEOUT_MS": "", "KAFKA_HEARTBEAT_INTERVAL_MS": ""}
    stack.bridge(**defaults).kill()
    for _ in range(2):
        bridge = stack.bridge(wait=False, **defaults)
        bridge.says("/healthz")
        time.sleep(1)
        bridge.kill()
    killed = time.monotonic()
    coordinates = stack.produce("orders", *range(20))
    stack.bridge(**defaults)
    eventually(lambda: task_ids(coordinates) <= set(stack.queued_ids()), 30)
    assert time.monotonic() - killed < 30


@pytest.mark.slow
def test_a_frozen_bridge_that_wakes_loses_nothing_and_moves_no_offset_of_another(stack: Stack):
    stack.make_topics("orders", partitions=4)
    first = stack.bridge()
    coordinates = stack.produce("orders", *range(40))
    eventually(lambda: stack.committed("orders") == 40, 15)
    first.signal(19)
    coordinates += stack.produce("orders", *range(40))
    stack.bridge()
    eventually(lambda: stack.committed("orders") == 80, 20)
    first.signal(18)
    first.says("the group went on without this bridge", 20)
    eventually(first.ready, 30)
    coordinates += stack.produce("orders", *range(40))
    eventually(lambda: stack.committed("orders") == 120, 20)
    assert set(stack.queued_ids()) == task_ids(coordinates)
