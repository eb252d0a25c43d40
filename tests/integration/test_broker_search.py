"""The broker is looked through in pieces, whatever lies there; and what waits for its retry holds back the intake."""

import json
from typing import Any

import pytest
import redis
from kombu import Connection

from lossless import transport
from lossless.transport import queue_inspection
from lossless.transport.queue_inspection import PIECE_BYTES, find_messages
from tests.delivery_checks import all_settled, choose
from tests.processes import Stack, eventually


def test_a_queue_is_read_in_pieces_and_nothing_is_passed_over_while_it_moves(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.use()
    pieces: list[int] = []
    real = redis.Redis.lrange

    def lrange(self: Any, *args: Any) -> Any:
        found: Any = real(self, *args)
        pieces.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(redis.Redis, "lrange", lrange)
    with Connection(redis_url) as connection, redis.Redis.from_url(redis_url) as client:
        channel: Any = connection.channel()
        for number in range(200):
            client.lpush("mail", b"%03d" % number + b"x" * 40_000)
        seen: set[int] = set()
        for sighting in find_messages(channel, "mail"):
            seen.add(int(sighting.raw[:3]))
            if len(seen) in (20, 90, 150):
                client.lpush("mail", *(b"%03d" % number + b"y" * 40_000 for number in range(200, 230)))
                client.rpop("mail")
        assert set(range(3, 200)) <= seen
        assert max(pieces) <= 1.1 * PIECE_BYTES + 2 * 40_003
        # One that is larger than a piece is a piece of its own.
        client.delete("mail")
        client.lpush("mail", *[b"z" * (2 * PIECE_BYTES)] * 12)
        pieces.clear()
        assert sum(1 for _ in find_messages(channel, "mail")) == 24
        assert sorted(set(pieces))[:2] == [0, 2 * PIECE_BYTES]
        assert queue_inspection.PIECE >= 100


@pytest.mark.slow
def test_a_foreign_message_stops_no_search_and_what_is_nowhere_is_handed_off_again(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}}, kafka_stuck_after=1)
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders")
    bridge = stack.bridge()
    queue = stack.environ["BRIDGE_GROUP"]
    with stack.redis() as client:
        stack.produce("orders", *range(4))
        eventually(lambda: client.llen(queue) == 4, 20)
        client.rpop(queue, 2)
        odd: Any = (
            {"headers": None},
            {"headers": {"kafka": "theirs"}},
            {"headers": {"kafka": {"messages": [None]}}},
            [],
        )
        client.lpush(queue, *map(json.dumps, odd), b"\xff")
        bridge.says("2 deliveries to tests.handlers.simple.work, handed off over 1 s ago, are in no task now", 30)
        # Open again, and handed off again.
        eventually(lambda: client.llen(queue) == 4 + len(odd) + 1, 20)
    assert bridge.exit_code is None
    assert bridge.count("Traceback") == 0


@pytest.mark.slow
def test_what_waits_for_its_retry_holds_back_the_intake(stack: Stack):
    choose(stack, {"orders": {"commit": "completion"}}, kafka_pause_above=10, kafka_resume_below=5)
    stack.environ["HANDLERS"] = "tests.handlers.simple"
    stack.make_topics("orders")
    bridge = stack.bridge()
    with stack.redis() as client:
        waiting = f"_waiting.{stack.environ['BRIDGE_GROUP']}"
        client.zadd(waiting, {f"entry {number}": 4_000_000_000 + number for number in range(11)})
        bridge.says("11 of them waiting for their retry", 20)
        stack.produce("orders", 1)
        reason = f"retries of queue {stack.environ['BRIDGE_GROUP']}"
        eventually(lambda: bridge.metric("bridge_partition_paused", reason=reason) == 1, 5)
        client.delete(waiting)
    stack.worker()
    all_settled(stack, "orders", done=1)
