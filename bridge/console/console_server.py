"""One console process: the port that it listens on, the uvicorn server, and its shutdown."""

import errno
import logging
import socket
from collections.abc import Sequence
from types import FrameType
from typing import Final

import uvicorn

from bridge.console.asgi_app import build_application
from bridge.console.auth.http_security import is_loopback_host
from bridge.console.console import Console
from bridge.errors import ConsoleRefused

#: The causes for which a port cannot be opened, and what to do.
_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there: end that one, or choose another with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address: --host takes one of its own, 127.0.0.1, or 0.0.0.0 for all",
    errno.EACCES: "this user may not open it: choose one above 1023 with --port",
}
#: A machine without IPv6 has no `::1`, which `localhost` may mean all the same.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on the port: one for each address of the host.

    Raises:
        ConsoleRefused: the port cannot be opened; the message has the cause and the remedy.
    """
    opened: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in _resolve_addresses(host, port):
        try:
            opened.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                _close_sockets(opened)
                raise _build_refusal(host, port, error) from None
            missing = error
    if missing is not None and not opened:
        raise _build_refusal(host, port, missing)
    return opened


def _resolve_addresses(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConsoleRefused(
            f"The console cannot listen on {host!r} ({getattr(error, 'strerror', None) or error}): --host takes an "
            "address of this machine, or its name, without a port (--port)."
        ) from None
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


def _close_sockets(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _build_refusal(host: str, port: int, error: OSError) -> ConsoleRefused:
    # The error's own text repeats the address.
    why = _ADVICE.get(error.errno or 0, str(error))
    return ConsoleRefused(f"The console cannot listen on port {port} of {host}: {why}.")


logger = logging.getLogger("bridge")

#: The seconds that running requests have at shutdown.
SHUTDOWN_SECONDS: Final = 3


def serve_console(console: Console, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        ConsoleRefused: other machines would be served without a sign-in; or the port cannot be opened.
        DeskUnavailable: the database does not respond, so it is not known whether there are users.
    """
    has_users = console.desk.users.any()
    named = has_users or bool(console.proxy.user_header) or console.issuer is not None
    if not (named or is_loopback_host(_format_host(host))):
        raise ConsoleRefused(
            f"This console has no users, so it listens on this machine alone, and not on {host}. Add one first: "
            "bridge deadletters users add NAME --role admin."
        )
    sockets = open_sockets(host, port)
    address = f"http://{_format_host('localhost' if is_loopback_host(_format_host(host)) else host)}:{port}"
    if named:
        logger.info("the console listens at %s", address)
    else:
        link = f"{address}/sign-in/{console.sessions.new_link()}"
        logger.info("the console has no users, so it listens on this machine alone; this link opens it, once: %s", link)
    _Server(console, host, port).run(sockets)


class _Server(uvicorn.Server):
    """A uvicorn server that ends the streams of live pages at shutdown, so that none is cut off with an error."""

    def __init__(self, console: Console, host: str, port: int) -> None:
        super().__init__(_build_config(console, host, port))
        self._live = console.live

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the live streams at SIGTERM or Ctrl-C, and shut down."""
        self._live.end()
        super().handle_exit(sig, frame)


def _build_config(console: Console, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        build_application(console),
        host=host,
        port=port,
        log_config=None,
        # The address was logged already.
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        # `bridge.console.auth.trusted_proxy` decides who sends a request.
        # The default would trust any client on this machine as a proxy.
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def _format_host(host: str) -> str:
    """Return a host as it is written in an address."""
    return f"[{host}]" if ":" in host else host
