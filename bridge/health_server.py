"""The HTTP server of /healthz, /readyz and /metrics, with bounded connections.

bridge/readiness.py decides whether a process is ready, and whether it is alive.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from bridge.metrics_by_topic import MetricsByTopic
from bridge.readiness import Readiness
from lossless.background_thread import start_thread

logger = logging.getLogger(__name__)

#: The maximum number of connections, each with a thread.
MOST: Final = 16
#: Seconds that a connection may be idle, and may last in all; a page of metrics takes at most one.
SILENT: Final = 5.0
LASTS: Final = 30.0
#: Seconds that a new connection waits for the place of the oldest.
WAITS: Final = 0.5


class BoundedServer(ThreadingMixIn, WSGIServer):
    """An HTTP server that bounds the number, idleness and age of its connections.

    If there are too many, the newest replaces the oldest: a client that sends half a request blocks nobody else.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._places = threading.Semaphore(MOST)
        self._lock = threading.Lock()
        super().__init__(address, handler)

    @classmethod
    def listening(cls, host: str, port: int, app: Callable[..., Any]) -> "BoundedServer":
        """Return a server that listens; it answers once it is started.

        Parameters:
            host: an address of this machine, IPv6 if it has a colon; "": every IPv4 address.

        Raises:
            OSError: the port or the address is not available.
        """
        kind = _OverIPv6 if ":" in host else cls
        made = make_server(host, port, app, server_class=kind, handler_class=_Handler)
        assert isinstance(made, BoundedServer)
        return made

    def start(self, name: str) -> None:
        """Answer requests, in a thread of this name."""
        start_thread(name, self.serve_forever)

    def server_bind(self) -> None:
        """Bind the port, without asking name servers for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in its own thread, if a place is free or becomes free soon."""
        if not self._places.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._open), None)
                if oldest is not None:
                    _hang_up(oldest)
            if not self._places.acquire(timeout=WAITS):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = time.monotonic() + LASTS
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, and free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
            self._places.release()

    def service_actions(self) -> None:
        """Close connections that have lasted too long, twice a second."""
        now = time.monotonic()
        with self._lock:
            for request, until in self._open.items():
                if until < now:
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection for debugging only."""
        logger.debug("a connection to the metrics or health pages broke off", exc_info=True)


class _OverIPv6(BoundedServer):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SILENT

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""


def _hang_up(request: socket.socket) -> None:
    # Not closed: its thread still uses it, and notices its end by this.
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class Sidecar:
    """The server of the health pages in its own thread, so that it answers while the loop is blocked.

    Parameters:
        alive: returns whether the loop has run recently.
        readiness: returns the bridge's readiness.
    """

    def __init__(
        self, registry: CollectorRegistry, alive: Callable[[], bool], readiness: Callable[[], Readiness]
    ) -> None:
        self._metrics = {"topic": make_wsgi_app(MetricsByTopic(registry)), "partition": make_wsgi_app(registry)}
        self._alive, self._readiness = alive, readiness
        self._server: BoundedServer | None = None

    def start(self, port: int, variable: str = "BRIDGE_HTTP_PORT", host: str = "") -> int | None:
        """Start listening; a port that is taken costs the pages, not the process.

        Parameters:
            variable: the setting of the port.
            host: the address to listen on; "": every IPv4 address.

        Returns:
            the port, or `None` if it could not be opened.
        """
        try:
            self._server = BoundedServer.listening(host, port, self._answer)
        except OSError as error:
            logger.error(
                "no /healthz, /readyz, /metrics: port %d cannot be opened (%s); set %s, or %s.",
                port,
                error,
                variable,
                variable.replace("PORT", "HOST"),
            )
            return None
        self._server.start("sidecar")
        return int(self._server.server_port)

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._show_metrics(environ, start_response)
        if path == "/healthz":
            alive = self._alive()
            return _plain(start_response, alive, [] if alive else ["the loop has not turned for a minute"])
        if path == "/readyz":
            return _plain(start_response, *self._readiness())
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"/healthz /readyz /metrics\n"]

    def _show_metrics(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        (by,) = parse_qs(environ.get("QUERY_STRING", "")).get("by", ["topic"])[-1:]
        if by not in self._metrics:
            start_response("400 Bad Request", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"/metrics has no by={by!r}: by=topic (the default) or by=partition.\n".encode()]
        page: Iterable[bytes] = self._metrics[by](environ, start_response)
        return page


def _plain(start_response: Callable[..., Any], well: bool, words: list[str]) -> Iterable[bytes]:
    status = "200 OK" if well else "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return ["\n".join([*(["ok"] if well else []), *words, ""]).encode()]
