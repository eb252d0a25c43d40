"""One POST and its status: it follows no redirect, reads no body, and ends within a set time.

Python's own client connects to the checked address, asks TLS for the host's name, and uses no proxy.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from time import monotonic, time
from typing import Final, NamedTuple

from bridge.deadletters.alarms.webhook_address import Network, WebhookTarget, Where, resolve_target
from bridge.errors import WebhookRefused
from lossless.background_thread import start_call, start_timer

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
    limited = _LimitedSocket()
    try:
        with limited:
            return _send_request(limited, target, body, headers, _look_up_addresses(limited, target, allowed))
    except WebhookRefused as error:
        return PostAnswer(None, str(error))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return PostAnswer(None, "it did not answer in time" if limited.is_over else _explain_failure(error))


def _explain_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or type(error).__name__}"
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"no answer of HTTP: {said}"


def _look_up_addresses(limited: "_LimitedSocket", target: WebhookTarget, allowed: Sequence[Network]) -> Sequence[Where]:
    """Return the addresses of the host. A resolver cannot be interrupted: after the time limit its thread is left
    alone.
    """
    lookup = start_call(f"looks up {target.host}", lambda: resolve_target(target, allowed))
    return lookup.result(limited.left)


class _LimitedSocket:
    """A socket that is shut down when the time is over, whatever waits for it."""

    def __init__(self) -> None:
        self._until = monotonic() + WITHIN
        self._socket: socket.socket | None = None
        self._watch: threading.Timer | None = None

    def __enter__(self) -> "_LimitedSocket":
        self._watch = start_timer("webhook limit", WITHIN, self._shut)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._socket is not None:
            self._socket.close()

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return monotonic() >= self._until

    @property
    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            TimeoutError: no time is left.
        """
        if self.is_over:
            raise TimeoutError
        return max(0.01, self._until - monotonic())

    def hold(self, made: socket.socket) -> None:
        """Set the socket to shut down."""
        made.settimeout(self.left)
        self._socket = made

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown: then another thread would read without TLS.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _send_request(
    limited: _LimitedSocket,
    target: WebhookTarget,
    body: bytes,
    headers: Mapping[str, str],
    addresses: Sequence[Where],
) -> PostAnswer:
    limited.hold(_connect_first(limited, addresses))
    made = limited._socket
    assert made is not None
    if target.scheme == "https":
        made = _make_tls_context().wrap_socket(made, server_hostname=target.host, do_handshake_on_connect=False)
        limited.hold(made)
        made.do_handshake()
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.sock = made
    # As in the address: with the port if it is not the default.
    connection.request("POST", target.path, body, {"host": target.shown.partition("://")[2], **headers})
    response = connection.getresponse()
    limited.left  # noqa: B018 (a shut socket may look like the end of the answer)
    return PostAnswer(response.status, again_after=_parse_retry_after(response.headers.get("retry-after", "")))


def _connect_first(limited: _LimitedSocket, addresses: Sequence[Where]) -> socket.socket:
    """Return a socket to the first address that answers."""
    error: OSError = OSError("no address")
    for family, where in addresses:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.settimeout(min(CONNECT_WITHIN, limited.left))
            made.connect(where)
            return made
        except OSError as raised:
            made.close()
            error = raised
    raise error


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
