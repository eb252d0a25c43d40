"""The sidecar's three pages: /healthz, /readyz, /metrics."""

import logging
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

logger = logging.getLogger(__name__)


class Readiness(NamedTuple):
    """Whether a process does its work; why not, or what of it not, a sentence each."""

    ready: bool
    words: list[str]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: no line for each."""


class Sidecar:
    """Serves the pages from a thread of its own, so that a blocked loop can still be asked.

    Parameters:
        alive: whether the loop has turned lately.
        readiness: whether the bridge is consuming.
    """

    def __init__(
        self, registry: CollectorRegistry, alive: Callable[[], bool], readiness: Callable[[], Readiness]
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._alive, self._readiness = alive, readiness
        self._server: WSGIServer | None = None

    def start(self, port: int, variable: str = "BRIDGE_HTTP_PORT") -> int | None:
        """Listen; a port that is taken costs the pages, not the process.

        Parameters:
            variable: by which another port is set.

        Returns:
            the port, or `None` if it could not be opened.
        """
        try:
            self._server = make_server("", port, self._answer, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            logger.error(
                "no /healthz, /readyz, /metrics: port %d cannot be opened (%s); set %s.",
                port,
                error,
                variable,
            )
            return None
        threading.Thread(target=self._server.serve_forever, name="sidecar", daemon=True).start()
        return int(self._server.server_port)

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            page: Iterable[bytes] = self._metrics(environ, start_response)
            return page
        if path == "/healthz":
            alive = self._alive()
            return _plain(start_response, alive, [] if alive else ["the loop has not turned for a minute"])
        if path == "/readyz":
            return _plain(start_response, *self._readiness())
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"/healthz /readyz /metrics\n"]


def _plain(start_response: Callable[..., Any], well: bool, words: list[str]) -> Iterable[bytes]:
    status = "200 OK" if well else "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return ["\n".join([*(["ok"] if well else []), *words, ""]).encode()]
