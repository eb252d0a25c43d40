"""One HTTP request that ends by one deadline, follows no redirect, and uses no proxy, no cookie and no netrc file.

httpcore2, the lower half of httpx2, speaks HTTP over the network backend of this module. HTTP clients have a timeout
for each step, so a server that sends a byte at a time would never exceed it.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import Any, Final

import httpcore2

#: An address to which a socket connects.
Where = tuple[socket.AddressFamily, tuple[str, int]]
#: The errors of a request without an answer.
REQUEST_ERRORS: Final = (OSError, httpcore2.ProtocolError, ValueError)
#: Seconds for a connection to one address.
CONNECT_WITHIN: Final = 5.0


class Deadline:
    """The time at which a request ends, whatever it waits for."""

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            TimeoutError: no time is left.
        """
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        return left


@contextmanager
def open_answer(
    method: str,
    url: httpcore2.URL,
    headers: Mapping[str, str],
    body: bytes,
    addresses: Sequence[Where],
    deadline: Deadline,
) -> Iterator[httpcore2.Response]:
    """Send a request to the first address that responds, and yield the answer with its body unread.

    Raises:
        TimeoutError: the deadline passed.
        OSError, httpcore2.ProtocolError, ValueError: there was no answer, or it is not HTTP.
    """
    network = _PinnedNetwork(addresses, deadline)
    connection = httpcore2.HTTPConnection(url.origin, ssl_context=make_tls_context(), network_backend=network)
    sent: Any = dict(headers)
    with connection, connection.stream(method, url, headers=sent, content=body) as answer:
        yield answer


@cache
def make_tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificates."""
    return ssl.create_default_context()


class _PinnedNetwork(httpcore2.NetworkBackend):
    """The network backend of one request, which connects to the given addresses only."""

    def __init__(self, addresses: Sequence[Where], deadline: Deadline) -> None:
        self._addresses = addresses
        self._deadline = deadline

    def connect_tcp(self, *_: object, **__: object) -> httpcore2.NetworkStream:
        error: OSError = OSError("no address")
        for family, where in self._addresses:
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(min(CONNECT_WITHIN, self._deadline.left))
                connection.connect(where)
                return _BoundedStream(connection, self._deadline)
            except OSError as failure:
                connection.close()
                error = failure
        raise error


class _BoundedStream(httpcore2.NetworkStream):
    """A connection whose steps all end by the deadline, also if each step brings one byte."""

    def __init__(self, made: socket.socket, deadline: Deadline) -> None:
        self._socket = made
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._timed().recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        while left:
            left = left[self._timed().send(left) :]

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _BoundedStream(ssl_context.wrap_socket(self._timed(), server_hostname=server_hostname), self._deadline)

    def close(self) -> None:
        self._socket.close()

    def _timed(self) -> socket.socket:
        self._socket.settimeout(self._deadline.left)
        return self._socket
