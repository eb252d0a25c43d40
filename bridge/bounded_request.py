"""One HTTP request that ends by one deadline, follows no redirect, and uses no proxy, no cookie and no netrc file.

httpcore2, the lower half of httpx2, speaks HTTP over a network of ours. The timeouts of HTTP clients are for each
step, so a server that sends a byte at a time would never be late.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import Any, Final

import httpcore2

#: The address that a socket connects to.
Where = tuple[socket.AddressFamily, tuple[str, int]]
#: What a request that got no answer raises.
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
    """Yield the answer to a request, of which the body is not read yet; it is sent to the first address that answers.

    Raises:
        TimeoutError: the time was over.
        OSError, httpcore2.ProtocolError, ValueError: there was no answer, or none of HTTP.
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
    """The network of one request, which leads to its addresses and nowhere else."""

    def __init__(self, addresses: Sequence[Where], deadline: Deadline) -> None:
        self._addresses = addresses
        self._deadline = deadline

    def connect_tcp(self, *_: object, **__: object) -> httpcore2.NetworkStream:
        error: OSError = OSError("no address")
        for family, where in self._addresses:
            made = socket.socket(family, socket.SOCK_STREAM)
            try:
                made.settimeout(min(CONNECT_WITHIN, self._deadline.left))
                made.connect(where)
                return _BoundedStream(made, self._deadline)
            except OSError as raised:
                made.close()
                error = raised
        raise error


class _BoundedStream(httpcore2.NetworkStream):
    """A connection of which every step ends by the deadline, also if each brings a byte."""

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
