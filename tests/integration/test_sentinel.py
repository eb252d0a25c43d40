"""Broker and ledger behind Sentinels: the master is killed under load, and a replica goes on with all of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.delivery_checks import audit, choose, command, in_order, wait_until_settled
from tests.processes import Stack, eventually
from tests.redis_user import list_refused, make_user
from tests.servers.sentinel import SentinelServers

RECORDS = 300
#: A failover is noticed soon, and what a dead worker held comes back soon.
QUICK = {"dead_after": 3, "socket_timeout": 2, "socket_connect_timeout": 2}


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[SentinelServers]:
    with SentinelServers(tmp_path, password="watch", appendfsync="everysec") as servers:
        yield servers


@pytest.fixture
def guarded(kafka: Any, sentinel: SentinelServers, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    for client in (sentinel.at_one, sentinel.at_two):  # a replica does not get users from its master
        make_user(client, topic_prefix, "secret")
    with Stack(kafka.bootstrap_servers, sentinel.url_of("app:secret"), topic_prefix, tmp_path, "") as stack:
        topics = {"orders": {"commit": "completion"}, "keyed": {"commit": "completion", "order": "key"}}
        choose(stack, topics, broker_transport_options={**QUICK, "sentinel_kwargs": {"password": "watch"}})
        stack.make_topics("orders", "keyed", partitions=2)
        yield stack


@pytest.mark.slow
def test_the_master_is_killed_under_load_and_nothing_is_lost(guarded: Stack, sentinel: SentinelServers):
    bridge, worker = guarded.bridge(), guarded.worker()
    placed = guarded.produce("orders", *({"id": number, "sleep": 0.01} for number in range(RECORDS)))
    for key in (b"a", b"b", b"c"):
        placed += guarded.produce("keyed", *({"id": number} for number in range(40)), key=key)
    eventually(lambda: len(guarded.done()) > 50, 30, "work is under way")
    assert "Redis: min-replicas-to-write is 0" in command(guarded, "check", code=None)
    sentinel.cut_replication()
    lost = len(guarded.done()) + 50
    eventually(lambda: len(guarded.done()) > lost, 30, "the replica lacks some of it")
    sentinel.kill_master()
    placed += guarded.produce("orders", *({"id": number, "sleep": 0.01} for number in range(RECORDS)))
    for topic in ("orders", "keyed"):
        wait_until_settled(guarded, topic, 90)
    assert set(guarded.done()) == set(placed)
    in_order(guarded, "keyed")
    for topic in ("orders", "keyed"):
        assert audit(guarded, topic)["clean"]
    assert (bridge.exit_code, worker.exit_code) == (None, None)
    assert "its last writes may be lost" in bridge.text or "the ledger lost writes" in bridge.text
    assert list_refused(sentinel.at_two) == []
    assert not {"secret", "watch"} & set((bridge.text + worker.text).split())
    # The ledger is in the broker: the check says of both that they answer, of neither a warning.
    said = command(guarded, "check", code=None)
    assert "the ledger at sentinel://" in said
    assert "there is no ledger" not in said
