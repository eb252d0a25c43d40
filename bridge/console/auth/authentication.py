"""Authentication of a request: by the session of its cookie, or by the header of a trusted proxy."""

import hmac
import logging
import secrets
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.console.auth import browser_session
from bridge.console.auth.authorization import ANONYMOUS, Principal
from bridge.console.console import Console
from bridge.errors import BridgeError, DeskUnavailable, ProxyRefused

logger = logging.getLogger(__name__)

#: The key of form tokens without a session: forms from before a restart must be loaded again.
_FORM_KEY: Final = secrets.token_bytes(32)


def authenticate(asked: Console, request: Request) -> Principal:
    """Return the principal of a request; it waits for the database if there is a session cookie.

    Raises:
        HTTPException: the proxy header is not to be trusted.
    """
    try:
        proxied = asked.proxy.signed_in(get_peer_address(request), request.headers)
    except ProxyRefused as error:
        raise HTTPException(403, str(error)) from None
    if proxied is None:
        found = asked.sessions.who(browser_session.read_session_cookie(request))
        return ANONYMOUS if found is None else found._replace(mark=asked.form_drafts.mark(found.name))
    token = hmac.digest(_FORM_KEY, proxied.name.encode(), "sha256").hex()
    mark = asked.form_drafts.mark(proxied.name)
    return Principal(proxied.name, proxied.role, token, signs_out=False, mark=mark, scope=proxied.scope)


def redact_error(error: BridgeError, to: Principal) -> BridgeError:
    """Return an error for the caller of a request: anonymous callers are not told where the database is."""
    if to is not ANONYMOUS or not isinstance(error, DeskUnavailable):
        return error
    logger.warning("%s", error)
    return DeskUnavailable(
        "The dead letters' database does not respond, so the sign-in cannot be checked: the log of "
        "bridge deadletters serve says which database it is, and why."
    )


def get_peer_address(request: Request) -> str:
    """Return the network address that a request came from."""
    return request.client.host if request.client else ""
