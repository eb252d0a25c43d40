"""One request to an issuer, and the JSON that it answers: within a set time and size, and no redirect is followed."""

import json
import ssl
from collections.abc import Mapping
from functools import cache
from time import monotonic
from typing import Any, Final

import httpx2

from bridge.errors import IssuerUnavailable

#: Seconds for a connection and for each part of an answer, and for all of it.
PART_WITHIN: Final = 5.0
WITHIN: Final = 10.0
#: Bytes of an answer.
LARGEST: Final = 1_000_000


def get(address: str) -> dict[str, Any]:
    """The object at an address.

    Raises:
        IssuerUnavailable: it did not answer so.
    """
    status, found = _asked("GET", address)
    if status != 200:
        raise IssuerUnavailable(f"it answers {status}")
    return found


def post(address: str, form: Mapping[str, str], basic: tuple[str, str] | None) -> tuple[int, dict[str, Any]]:
    """Send a form: the status, and the object that is answered.

    Parameters:
        basic: name and password, for the header.

    Raises:
        IssuerUnavailable: it did not answer, or no object.
    """
    return _asked("POST", address, data=form, auth=basic)


def _asked(method: str, address: str, **sent: Any) -> tuple[int, dict[str, Any]]:
    until, body = monotonic() + WITHIN, b""
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    try:
        # One client each: an issuer's cookies are nobody's here.
        with (
            httpx2.Client(verify=_context(), timeout=PART_WITHIN, follow_redirects=False) as client,
            client.stream(method, address, headers=headers, **sent) as answer,
        ):
            for part in answer.iter_bytes():
                body += part
                if len(body) > LARGEST or monotonic() > until:
                    raise IssuerUnavailable("its answer is too long, or takes too long")
            return answer.status_code, _object(body, answer.status_code)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        # Not in its words, which may have the address with all that was sent.
        raise IssuerUnavailable(f"no answer of HTTP: {type(error).__name__}") from None


def _object(body: bytes, status: int) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IssuerUnavailable(f"it answers {status}, and no JSON")
    return found


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()
