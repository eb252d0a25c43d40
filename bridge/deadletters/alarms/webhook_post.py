"""One POST and its status: it follows no redirect, reads no body, and ends within a set time.

httpcore2, the lower half of httpx2, speaks HTTP over a network of ours. That leads to the checked addresses alone, and
has one deadline for everything. TLS is asked for the host's name, and no proxy is used.
"""

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from time import monotonic, time
from typing import Any, Final, NamedTuple

import httpcore2

from bridge.deadletters.alarms.webhook_address import Network, WebhookTarget, Where, resolve_target
from bridge.errors import WebhookRefused
from lossless.background_thread import start_call

#: Seconds for a connection, and for the whole request, also if the receiver answers a byte at a time.
CONNECT_WITHIN: Final = 5.0
WITHIN: Final = 15.0


class PostAnswer(NamedTuple):
    """The answer of a receiver.

    Attributes:
        status: the HTTP status; `None`: there was no answer.
        why: why there was none, without the address's path.
        again_after: the seconds of `Retry-After`, if the receiver sent it.
    """

    status: int | None
    why: str = ""
    again_after: float | None = None

    @property
    def is_taken(self) -> bool:
        """Return whether the receiver accepted the event."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """Return whether the receiver wants no more events."""
        return self.status == 410

    @property
    def words(self) -> str:
        """For people."""
        return self.why if self.status is None else f"HTTP {self.status}"


def post_event(
    target: WebhookTarget, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]
) -> PostAnswer:
    """Send an event. Raises nothing: a failure is an answer too.

    Parameters:
        allowed: the private networks that are allowed.
    """
    deadline = _Deadline()
    try:
        network = _PinnedNetwork(_look_up_addresses(deadline, target, allowed), deadline)
        return _send_request(network, target, body, headers)
    except WebhookRefused as error:
        return PostAnswer(None, str(error))
    except (OSError, httpcore2.ProtocolError, ValueError) as error:
        return PostAnswer(None, _explain_failure(error))


def _explain_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or type(error).__name__}"
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"no answer of HTTP: {said}"


def _look_up_addresses(deadline: "_Deadline", target: WebhookTarget, allowed: Sequence[Network]) -> Sequence[Where]:
    """Return the addresses of the host. A resolver cannot be interrupted: after the time limit its thread is left
    alone.
    """
    lookup = start_call(f"looks up {target.host}", lambda: resolve_target(target, allowed))
    return lookup.result(deadline.left)


class _Deadline:
    """The time at which a request ends, whatever it waits for."""

    def __init__(self) -> None:
        self._until = monotonic() + WITHIN

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


class _PinnedNetwork(httpcore2.NetworkBackend):
    """The network of one request, which leads to the first of its addresses that answers, and nowhere else."""

    def __init__(self, addresses: Sequence[Where], deadline: _Deadline) -> None:
        self._addresses = addresses
        self._deadline = deadline

    def connect_tcp(self, *_: object, **__: object) -> httpcore2.NetworkStream:
        error: OSError = OSError("no address")
        for family, where in self._addresses:
            made = socket.socket(family, socket.SOCK_STREAM)
            try:
                made.settimeout(min(CONNECT_WITHIN, self._deadline.left))
                made.connect(where)
                return _LimitedStream(made, self._deadline)
            except OSError as raised:
                made.close()
                error = raised
        raise error


class _LimitedStream(httpcore2.NetworkStream):
    """A connection of which every step ends by the deadline, also if each brings a byte."""

    def __init__(self, made: socket.socket, deadline: _Deadline) -> None:
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
        return _LimitedStream(ssl_context.wrap_socket(self._timed(), server_hostname=server_hostname), self._deadline)

    def close(self) -> None:
        self._socket.close()

    def _timed(self) -> socket.socket:
        self._socket.settimeout(self._deadline.left)
        return self._socket


def _send_request(
    network: _PinnedNetwork, target: WebhookTarget, body: bytes, headers: Mapping[str, str]
) -> PostAnswer:
    url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    # As in the address: with the port if it is not the default.
    sent: Any = {"host": target.shown.partition("://")[2], **headers}
    connection = httpcore2.HTTPConnection(url.origin, ssl_context=_make_tls_context(), network_backend=network)
    with connection, connection.stream("POST", url, headers=sent, content=body) as response:
        again = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
        return PostAnswer(response.status, again_after=_parse_retry_after(again.decode("latin-1")))


@cache
def _make_tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _parse_retry_after(said: str) -> float | None:
    """Return the seconds of a `Retry-After` header, which has seconds or a date."""
    if said.strip().isdecimal():
        return float(said.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(said).timestamp() - time())
    return None
