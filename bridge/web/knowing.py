"""Who sends a request: by the session of its cookie, or by the word of a proxy that is trusted."""

import hmac
import logging
import secrets
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.errors import BridgeError, DeskUnavailable, ProxyRefused
from bridge.web import cookies
from bridge.web.console import Console
from bridge.web.roles import NOBODY, Who

logger = logging.getLogger(__name__)

#: With which forms of people without a session are marked: those from before a restart must be loaded again.
_KEY: Final = secrets.token_bytes(32)


def who(asked: Console, request: Request) -> Who:
    """Who sends it; it waits for the database where there is a cookie.

    Raises:
        HTTPException: it says what is not believed of it.
    """
    try:
        proxied = asked.proxy.signed_in(peer(request), request.headers)
    except ProxyRefused as error:
        raise HTTPException(403, str(error)) from None
    if proxied is None:
        found = asked.sessions.who(cookies.given(request))
        return NOBODY if found is None else found._replace(mark=asked.keeping.mark(found.name))
    name, role = proxied
    token = hmac.digest(_KEY, name.encode(), "sha256").hex()
    return Who(name, role, token, signs_out=False, mark=asked.keeping.mark(name))


def told(error: BridgeError, to: Who) -> BridgeError:
    """What is said of an error to who asked: whom nobody knows is not told where the database is."""
    if to is not NOBODY or not isinstance(error, DeskUnavailable):
        return error
    logger.warning("%s", error)
    return DeskUnavailable(
        "The dead letters' database does not answer, so it is not known who asks: the log of bridge deadletters serve "
        "says which database it is, and why."
    )


def peer(request: Request) -> str:
    """The address that it came from."""
    return request.client.host if request.client else ""
