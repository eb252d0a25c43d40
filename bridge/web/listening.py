"""The port of a console: taken before it says where it is found, so that no link leads to another program."""

import errno
import socket
from collections.abc import Sequence
from typing import Final

from bridge.errors import ConsoleRefused

#: Why a port cannot be had, and what to do.
_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there: end that one, or choose another with --port",
    errno.EADDRNOTAVAIL: "this machine has no such address: --host takes one of its own, 127.0.0.1, or 0.0.0.0 for all",
    errno.EACCES: "this user may not open it: choose one above 1023 with --port",
}
#: A machine without IPv6 has no `::1`, which `localhost` may mean all the same.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen there: one for each address that the host has.

    Raises:
        ConsoleRefused: it cannot be listened there: why, and what to do.
    """
    opened: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in _addresses(host, port):
        try:
            opened.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                _close(opened)
                raise _refused(host, port, error) from None
            missing = error
    if missing is not None and not opened:
        raise _refused(host, port, missing)
    return opened


def _addresses(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConsoleRefused(
            f"The console cannot listen on {host!r} ({getattr(error, 'strerror', None) or error}): --host takes an "
            "address of this machine, or its name, without a port (--port)."
        ) from None
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _refused(host: str, port: int, error: OSError) -> ConsoleRefused:
    # Its own words have the address a second time.
    why = _ADVICE.get(error.errno or 0, str(error))
    return ConsoleRefused(f"The console cannot listen on port {port} of {host}: {why}.")
