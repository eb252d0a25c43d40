"""The Redis of the tests of `lossless`: emptied for each, and stopped, frozen and filled by some."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import transport as _kombu_transport

from lossless import transport
from tests.lossless.harness import QUICK, TRANSPORT_APP, Broker, Worker, wait_until
from tests.project_process import forked, pytest_runtest_makereport
from tests.servers.redis import RedisServer

kombu_transport: Any = _kombu_transport

__all__ = ["forked", "pytest_runtest_makereport"]


@pytest.fixture(scope="module", autouse=True)
def transport_in_use() -> Iterator[None]:
    """This transport, in the test's own process too; kombu's own again afterwards."""
    before = dict(kombu_transport.TRANSPORT_ALIASES)
    transport.use()
    yield
    kombu_transport.TRANSPORT_ALIASES.update(before)
    kombu_transport._transport_cache.clear()


@pytest.fixture
def broker(mortal_redis: RedisServer) -> Iterator[Broker]:
    """A Redis that answers, empty and with room."""
    broker = Broker(mortal_redis)
    if not mortal_redis.process.running:
        mortal_redis.start()
    mortal_redis.thaw()
    wait_until(broker.client.ping)
    broker.client.replicaof("NO", "ONE")
    broker.client.config_set("maxmemory", "0")
    broker.client.flushall()
    yield broker
    broker.close()


@pytest.fixture
def start_worker(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start workers with quick settings; they are killed at the end."""
    workers: list[Worker] = []

    def start(*arguments: str, options: dict[str, Any] | None = None, **settings: Any) -> Worker:
        settings["broker_transport_options"] = {**QUICK, **(options or {})}
        worker = Worker(broker.url, tmp_path, *arguments, **settings)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture
def producer(broker: Broker) -> Iterator[Celery]:
    """A producer on this transport."""
    app = Celery(broker=broker.url)
    yield app
    app.close()


@pytest.fixture
def send(producer: Celery) -> Callable[..., Any]:
    """Publish a task of the transport's test app by its short name."""

    def send(name: str, *args: Any, **options: Any) -> Any:
        return producer.send_task(f"{TRANSPORT_APP}.{name}", args, **options)

    return send


@pytest.fixture
def ran(broker: Broker) -> Callable[[], list[int]]:
    """The numbers of the tasks that ran, in the order in which they did."""
    return lambda: [number for number, _ in broker.noted("ran")]
