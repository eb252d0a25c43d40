"""This transport and kombu's own at one broker: side by side, to this one, and back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from lossless.__main__ import main
from lossless.transport.queue_drain import QueueDrain
from lossless.transport.storage_layout import TransportKeys, store_message
from tests.lossless.harness import TRANSPORT_APP, Broker, entry, wait_until, worker
from tests.project_process import ROOT

Send = Callable[..., Any]
Ran = Callable[[], list[int]]


def drain(broker: Broker, *arguments: str) -> int:
    return main(["drain", "--broker", broker.url, "--watch", "0.5", *arguments])


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["kombu", "lossless"])
def test_a_mixed_fleet_runs_what_either_sends(broker: Broker, tmp_path: Path, ran: Ran, transport: str):
    with worker(broker.url, tmp_path), worker(broker.url, tmp_path, transport="kombu"):
        code = f"""
from {TRANSPORT_APP} import mark
for number in range(40):
    mark.apply_async((number,), countdown=number % 2)
"""
        environ = {**os.environ, "CELERY_BROKER_URL": broker.url, "TEST_TRANSPORT": transport}
        subprocess.run([sys.executable, "-c", code], env=environ, cwd=ROOT, check=True)
        wait_until(lambda: sorted(ran()) == list(range(40)), what="each has run once")
        wait_until(lambda: not broker.left(), what="nothing is left")


@pytest.mark.slow
def test_what_a_killed_plain_worker_held_comes_to_this_transport_in_time(
    broker: Broker, tmp_path: Path, send: Send, ran: Ran
):
    soon = {"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    with worker(broker.url, tmp_path, transport="kombu", broker_transport_options=soon) as plain:
        for number in range(3):
            send("nap", 60 if number == 0 else 0, number)
        wait_until(lambda: broker.client.hlen("unacked") == 3, what="the plain worker holds them")
        plain.kill()
    time.sleep(1.1)  # its visibility timeout
    with worker(broker.url, tmp_path, broker_transport_options=soon):
        wait_until(lambda: broker.noted("started") and not broker.client.hlen("unacked"), what="they are back")
        assert broker.noted("started")[0] == 0


def test_what_killed_workers_held_and_what_waits_is_drained_to_plain_workers(
    broker: Broker, tmp_path: Path, send: Send, ran: Ran, capsys: pytest.CaptureFixture[str]
):
    with worker(broker.url, tmp_path, "-Q", "celery,other") as lossless:
        send("nap", 60, 0)
        wait_until(lambda: broker.noted("started"))
        send("mark", 1)
        send("mark", 2, countdown=3600, queue="other")
        send("mark", 3, countdown=2, priority=9)
        wait_until(lambda: broker.taken() == 2, what="two are held")
        lossless.kill()
    assert drain(broker) == 0
    assert "2 messages that were held by workers that are gone" in capsys.readouterr().out
    assert sorted(key for key in broker.client.keys("_*") if b"kombu" not in key and b"_swept." not in key) == []
    messages = [json.loads(raw) for raw in broker.client.lrange("celery", 0, -1)]
    assert [message["headers"]["redelivered"] for message in messages] == [True, True]
    assert broker.client.llen("other") == 1
    broker.client.rpop("celery")  # the one that takes a minute
    with worker(broker.url, tmp_path, "-Q", "celery,other", transport="kombu"):
        wait_until(lambda: sorted(ran()) == [1, 3], what="the plain worker runs what is due")
        wait_until(lambda: broker.client.hlen("unacked") == 1, what="and holds what is not")


@pytest.mark.slow
def test_a_drain_leaves_a_living_worker_alone(broker: Broker, tmp_path: Path, send: Send, ran: Ran):
    with worker(broker.url, tmp_path, broker_transport_options={"dead_after": 1.5}) as living:  # it beats every 0.25 s
        send("nap", 3, 1)
        wait_until(lambda: broker.noted("started"))
        assert main(["drain", "--broker", broker.url, "--watch", "2"]) == 3
        wait_until(lambda: ran() == [1])
        assert living.terminate() == 0


@pytest.mark.parametrize("prefix", ["", "a*b:"])
def test_a_drain_keeps_the_order_and_says_what_it_cannot_move(
    broker: Broker, prefix: str, capsys: pytest.CaptureFixture[str]
):
    keys = TransportKeys(prefix)
    messages = [json.dumps(entry("done", str(number))).encode() for number in range(6)]
    for number in (0, 1):
        broker.client.hset(keys.taken("gone"), str(9 + number), store_message(f"{prefix}celery", messages[number]))
    broker.client.hset(keys.owners, "gone", 5)
    for number in (5, 4, 3):
        broker.client.zadd(keys.waiting("celery"), {store_message(f"{prefix}celery", messages[number]): number})
    broker.client.lpush(f"{prefix}celery", messages[2])
    assert drain(broker, "--prefix", prefix) == 0
    ids = [json.loads(raw)["headers"]["id"] for raw in broker.client.lrange(f"{prefix}celery", 0, -1)]
    assert ids[::-1] == ["0", "1", "2", "3", "4", "5"]
    assert [key for key in broker.client.keys("*") if b"_swept." not in key] == [f"{prefix}celery".encode()]

    broker.client.hset(keys.taken("odd"), "1", b"no message of this transport")
    broker.client.lpush(keys.undecodable, b"{")
    assert drain(broker, "--prefix", prefix) == 1
    said = capsys.readouterr().err
    assert f"1 entries of {keys.taken('odd')}" in said
    assert f"1 entries of {keys.undecodable}" in said


def test_an_owner_that_shows_that_it_lives_keeps_what_it_holds(broker: Broker):
    keys = TransportKeys()
    client = redis.Redis(port=broker.port, db=broker.database)
    broker.client.hset(keys.taken("woken"), "1", store_message("celery", b"{}"))
    broker.client.hset(keys.owners, "woken", 1)
    draining = QueueDrain(client, keys)
    beats = draining.beats()
    broker.client.hincrby(keys.owners, "woken", 1)
    with pytest.raises(Exception, match="lives"):
        draining.held(beats)
    assert broker.client.hlen(keys.taken("woken")) == 1
    assert not broker.client.exists("celery")


def test_a_drain_without_redis_or_without_a_broker_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert main(["drain", "--broker", "redis://127.0.0.1:1/0"]) == 1
    assert "Redis did not answer" in capsys.readouterr().err
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
    with pytest.raises(SystemExit) as exit_:
        main(["drain"])
    assert exit_.value.code == 2
