"""The sidecar's pages: each says what it knows, and a port that is taken costs the pages alone."""

import socket
import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Gauge

from bridge.health_server import MOST, Sidecar
from bridge.readiness import Readiness


class Served:
    """A sidecar that listens, with what it is told."""

    def __init__(self) -> None:
        self.lives, self.readiness = True, Readiness(True, [])
        self.registry = registry = CollectorRegistry()
        Gauge("some_figure", "A figure.", registry=registry).set(7)
        self.sidecar = Sidecar(registry, lambda: self.lives, lambda: self.readiness)
        self.port = self.sidecar.start(0)

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.sidecar.stop()


def test_a_loop_that_turns_is_healthy_and_one_that_does_not_is_not(served: Served):
    assert served.page("/healthz") == (200, "ok\n")
    served.lives = False
    assert served.page("/healthz") == (503, "the loop has not turned for a minute\n")


def test_what_keeps_it_from_consuming_is_said_a_sentence_each(served: Served):
    assert served.page("/readyz") == (200, "ok\n")
    served.readiness = Readiness(False, ["Kafka does not answer.", "the ledger does not: größe."])
    assert served.page("/readyz") == (503, "Kafka does not answer.\nthe ledger does not: größe.\n")


def test_what_it_leaves_out_while_it_consumes_the_rest_is_said_too(served: Served):
    served.readiness = Readiness(True, ["topic 'orders' is halted."])
    assert served.page("/readyz") == (200, "ok\ntopic 'orders' is halted.\n")


def test_metrics_are_prometheus_own(served: Served):
    status, page = served.page("/metrics")
    assert status == 200
    assert "some_figure 7.0" in page


def test_another_page_names_those_that_there_are(served: Served):
    assert served.page("/") == (404, "/healthz /readyz /metrics\n")


def test_a_port_that_is_taken_is_said_and_ends_nothing(served: Served, caplog):
    assert served.port is not None
    other = Sidecar(CollectorRegistry(), lambda: True, lambda: Readiness(True, []))
    assert other.start(served.port) is None
    assert f"port {served.port} cannot be opened" in caplog.text
    other.stop()


def test_half_open_connections_take_few_threads_and_keep_nobody_from_an_answer(served: Served):
    before = threading.active_count()
    assert served.port is not None
    some = []
    try:
        for _ in range(100):
            some.append(socket.create_connection(("127.0.0.1", served.port), 5))
            some[-1].sendall(b"GET /healthz HT")
        assert served.page("/healthz") == (200, "ok\n")
        assert threading.active_count() - before <= MOST + 1
    finally:
        for each in some:
            each.close()


def test_a_connection_that_is_silent_or_lasts_too_long_is_ended(served: Served, monkeypatch):
    monkeypatch.setattr("bridge.health_server.LASTS", 0.3)
    assert served.port is not None
    with socket.create_connection(("127.0.0.1", served.port), 5) as one:
        one.sendall(b"GET /healthz HT")
        assert one.recv(1) == b""
    monkeypatch.setattr("bridge.health_server._Handler.timeout", 0.1)
    monkeypatch.setattr("bridge.health_server.LASTS", 60)
    with socket.create_connection(("127.0.0.1", served.port), 5) as one:
        assert one.recv(1) == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_listens_on_the_address_that_is_set_alone(host):
    sidecar = Sidecar(CollectorRegistry(), lambda: True, lambda: Readiness(True, []))
    port = sidecar.start(0, host=host)
    assert port is not None
    with socket.create_connection((host, port), 5):
        pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2" if host == "127.0.0.1" else "127.0.0.1", port), 5)
    sidecar.stop()


def test_metrics_are_by_topic_and_by_partition_if_a_request_asks(served: Served):
    lag = Gauge("lag", "Lag.", ["topic", "partition"], registry=served.registry)
    for partition in range(3):
        lag.labels("orders", partition).set(2)
    assert 'lag{topic="orders"} 6.0\n' in served.page("/metrics")[1]
    assert 'lag{topic="orders"} 6.0\n' in served.page("/metrics?by=topic&name[]=lag")[1]
    assert 'lag{partition="2",topic="orders"} 2.0\n' in served.page("/metrics?by=partition")[1]
    assert served.page("/metrics?by=handler") == (
        400,
        "/metrics has no by='handler': by=topic (the default) or by=partition.\n",
    )
