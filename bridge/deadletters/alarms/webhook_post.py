"""One POST and its status: it goes to the checked addresses alone, reads no body, and ends within a set time."""

import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from time import time
from typing import Final, NamedTuple

import httpcore2

from bridge.bounded_request import REQUEST_ERRORS, Deadline, Where, open_answer
from bridge.deadletters.alarms.webhook_address import Network, WebhookTarget, resolve_target
from bridge.errors import WebhookRefused
from lossless.background_thread import start_call

#: Seconds for the whole request, also if the receiver answers a byte at a time.
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
        """Return the answer in words."""
        return self.why if self.status is None else f"HTTP {self.status}"


def post_event(
    target: WebhookTarget, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]
) -> PostAnswer:
    """Send an event. Raises nothing: a failure is an answer too.

    Parameters:
        allowed: the private networks that are allowed.
    """
    deadline = Deadline(WITHIN)
    try:
        return _send_request(target, body, headers, _look_up_addresses(deadline, target, allowed), deadline)
    except WebhookRefused as error:
        return PostAnswer(None, str(error))
    except REQUEST_ERRORS as error:
        return PostAnswer(None, _explain_failure(error))


def _explain_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or type(error).__name__}"
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"no answer of HTTP: {said}"


def _look_up_addresses(deadline: Deadline, target: WebhookTarget, allowed: Sequence[Network]) -> Sequence[Where]:
    """Return the addresses of the host. A resolver cannot be interrupted: after the time limit its thread is left
    alone.
    """
    lookup = start_call(f"looks up {target.host}", lambda: resolve_target(target, allowed))
    return lookup.result(deadline.left)


def _send_request(
    target: WebhookTarget, body: bytes, headers: Mapping[str, str], addresses: Sequence[Where], deadline: Deadline
) -> PostAnswer:
    url = httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    # As in the address: with the port if it is not the default.
    sent = {"host": target.shown.partition("://")[2], **headers}
    with open_answer("POST", url, sent, body, addresses, deadline) as answer:
        again = next((value for name, value in answer.headers if name.lower() == b"retry-after"), b"")
        return PostAnswer(answer.status, again_after=_parse_retry_after(again.decode("latin-1")))


def _parse_retry_after(said: str) -> float | None:
    """Return the seconds of a `Retry-After` header, which has seconds or a date."""
    if said.strip().isdecimal():
        return float(said.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(said).timestamp() - time())
    return None
