"""What else Celery on Redis is run with: other servers, TLS, beat, autoscale, other pools. It works, or is refused."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from celery.concurrency.base import BasePool
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import OperationalError

from lossless.worker import process_pool
from tests.lossless.harness import TRANSPORT_APP, Broker, Worker, wait_until, worker
from tests.servers.certificate import write_certificate
from tests.servers.missing import need
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, machine_server_missing

Send = Callable[..., Any]
Ran = Callable[[], list[int]]


@pytest.mark.slow
def test_beat_sends_and_its_worker_runs(broker: Broker, tmp_path: Path, ran: Ran):
    schedule = {"often": {"task": f"{TRANSPORT_APP}.mark", "schedule": 0.3, "args": [7]}}
    with worker(broker.url, tmp_path, "-B", "-s", str(tmp_path / "schedule"), beat_schedule=schedule) as beating:
        wait_until(lambda: len(ran()) >= 3, what="what beat sent has run")
        assert set(ran()) == {7}
        assert beating.terminate() == 0


@pytest.mark.slow
def test_a_pool_that_grows_and_shrinks_loses_nothing(
    broker: Broker, tmp_path: Path, send: Send, ran: Ran, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AUTOSCALE_KEEPALIVE", "1")
    with worker(broker.url, tmp_path, "--autoscale=3,1") as scaling:
        for number in range(6):
            send("nap", 1, number)
        wait_until(lambda: len(broker.noted("started")) - len(ran()) >= 2, what="more processes than one work")
        scaling.says("Scaling down")
        for number in range(6, 9):
            send("nap", 0, number)
        wait_until(lambda: sorted(ran()) == list(range(9)), 30, "each has run once")
        wait_until(lambda: not broker.left(), what="nothing is left")


def test_a_pool_grows_beside_other_workers(broker: Broker, tmp_path: Path, send: Send, ran: Ran):
    with worker(broker.url, tmp_path, "-c1"), worker(broker.url, tmp_path, "--autoscale=3,1"):
        for number in range(4):
            send("nap", 9, number)
        wait_until(lambda: len(broker.noted("started")) == 4, 8, "each has a process before the first has ended")


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_a_pool_of_greenlets_is_refused_by_name(name: str):
    kind = type("TaskPool", (BasePool,), {"__module__": f"celery.concurrency.{name}"})
    with pytest.raises(ImproperlyConfigured, match=rf"celery\.concurrency\.{name} is not supported.*prefork"):
        process_pool.prepare_pool(Celery(), object.__new__(kind))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, and another."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("server", "stranger"):
        write_certificate(name, folder / f"{name}.pem", folder / f"{name}.key", address="127.0.0.1")
    return folder


@pytest.fixture(scope="module")
def encrypted(certificates: Path) -> Iterator[int]:
    """The TLS port of a Redis."""
    need(machine_server_missing())
    port = free_port()
    files = {"tls_cert_file": "server.pem", "tls_key_file": "server.key", "tls_ca_cert_file": "server.pem"}
    paths = {name: str(certificates / file) for name, file in files.items()}
    with RedisServer(shutil.which("redis-server"), tls_port=str(port), tls_auth_clients="no", **paths):
        yield port


def url(port: int, database: int, authority: Path) -> str:
    return f"rediss://127.0.0.1:{port}/{database}?ssl_cert_reqs=required&ssl_ca_certs={authority}"


@pytest.mark.servers
def test_tls_with_a_certificate_that_is_checked(encrypted: int, certificates: Path, tmp_path: Path):
    authority = certificates / "server.pem"
    with Celery(broker=url(encrypted, 0, authority)) as app:
        client = redis.Redis("127.0.0.1", encrypted, ssl=True, ssl_ca_certs=str(authority))
        app.send_task(f"{TRANSPORT_APP}.noop")
        # All connections are there, and it is not due before it is looked at.
        app.send_task(f"{TRANSPORT_APP}.noop", countdown=3)
        assert (client.llen("celery"), client.zcard("_waiting.celery")) == (1, 1)
        with worker(url(encrypted, 0, authority), tmp_path) as running:
            wait_until(lambda: running.count("succeeded") == 2, what="both have run")
            assert running.terminate() == 0
        left = {name: client.type(name) for name in ("celery", "_waiting.celery", "_taken") if client.exists(name)}
        assert left == {}, running.text
        client.close()


@pytest.mark.servers
@pytest.mark.slow
def test_a_server_whose_certificate_nobody_vouches_for_gets_nothing(encrypted: int, certificates: Path, tmp_path: Path):
    stranger = url(encrypted, 2, certificates / "stranger.pem")
    started = Worker(stranger, tmp_path, wait=False)
    try:
        started.says("CERTIFICATE_VERIFY_FAILED")
        assert " ready." not in started.text
    finally:
        started.kill()
    with pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"), Celery(broker=stranger) as app:
        app.send_task(f"{TRANSPORT_APP}.noop", retry=False)
