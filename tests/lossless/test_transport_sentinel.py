"""Through Redis Sentinel: the master fails over while a worker holds messages, and the worker goes on."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.lossless.event_listeners import ALL, listening
from tests.lossless.harness import TRANSPORT_APP, Broker, wait_until, worker
from tests.servers.sentinel import SentinelServers

DOZE = f"{TRANSPORT_APP}.doze"
NOOP = f"{TRANSPORT_APP}.noop"


class Sentinel(SentinelServers):
    """The servers, and what the workers' brokers hold."""

    @property
    def url(self) -> str:
        return f"sentinel://127.0.0.1:{self.port}/0"


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[Sentinel]:
    with Sentinel(tmp_path, appendfsync="everysec") as sentinel:
        yield sentinel


@pytest.fixture
def brokers(sentinel: Sentinel) -> Iterator[tuple[Broker, Broker]]:
    with closing(Broker(sentinel.one)) as one, closing(Broker(sentinel.two)) as two:
        yield one, two


def published(app: Celery) -> bool:
    try:
        return bool(app.send_task(NOOP, retry=False))
    except Exception:  # whatever a broker raises that fails over
        time.sleep(0.2)
        return False


@pytest.mark.slow
def test_a_failover_ends_nothing(sentinel: Sentinel, brokers: tuple[Broker, Broker], tmp_path: Path):
    options: dict[str, Any] = {"master_name": "mymaster", "dead_after": 3}
    options |= {"socket_timeout": 2, "socket_connect_timeout": 2}
    app = Celery(broker=sentinel.url, broker_transport_options=options)
    two = brokers[1]
    with app, worker(sentinel.url, tmp_path, broker_transport_options=options) as running:
        for _ in range(20):
            app.send_task(NOOP)
        wait_until(lambda: running.count("succeeded") == 20)
        app.send_task(DOZE, (3,))
        app.send_task(NOOP, countdown=2)
        wait_until(lambda: "doze" in running.text.rpartition("ready.")[2])
        wait_until(lambda: two.taken() == 1, what="replicated")
        sentinel.client.execute_command("SENTINEL", "FAILOVER", "mymaster")
        wait_until(lambda: two.client.role()[0] == b"master", 20)
        wait_until(lambda: published(app), 20)
        wait_until(lambda: running.count("succeeded") >= 22, 25)
        wait_until(lambda: not two.taken(), 15)
        assert not running.exited
        assert running.count(" ready.") == 1


@pytest.mark.slow
def test_who_listens_is_noticed_before_and_after_a_failover(
    sentinel: Sentinel, brokers: tuple[Broker, Broker], tmp_path: Path
):
    options: dict[str, Any] = {"master_name": "mymaster", "socket_timeout": 2, "socket_connect_timeout": 2}
    app = Celery(broker=sentinel.url, broker_transport_options=options)
    with app, worker(sentinel.url, tmp_path, "-E", broker_transport_options=options) as running:

        def seen_whole(broker: Broker) -> None:
            app.send_task(NOOP)
            wait_until(lambda: " succeeded" in running.text.rpartition("ready.")[2], what="one ran unheard")
            with listening(broker, sentinel.url, options=options) as listener:
                wait_until(lambda: any(event["type"] == "worker-heartbeat" for event in listener.seen))
                name = app.send_task(NOOP).id
                wait_until(lambda: listener.types(name) == ALL, what="one is seen whole")

        seen_whole(brokers[0])
        sentinel.client.execute_command("SENTINEL", "FAILOVER", "mymaster")
        wait_until(lambda: sentinel.at_two.role()[0] == b"master", 20)
        # With that the sentinel has cut whoever listened there, and sends nobody there any more.
        wait_until(lambda: sentinel.at_one.role()[0] == b"slave", 30, "the old master follows")
        wait_until(lambda: published(app), 20)
        seen_whole(brokers[1])
