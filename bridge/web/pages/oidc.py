"""Signing in by an issuer of OpenID Connect: there, and back.

The way there is a link: a form may be sent to this site alone (`form-action`), also by what it is sent on to.
"""

import logging
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.errors import IssuerUnavailable, SignInRefused, TooManySignIn
from bridge.web import console, cookies
from bridge.web.origins import way
from bridge.web.pages import signing

if TYPE_CHECKING:
    # An extra of its own.
    from bridge.web.oidc.signing import SigningIn

logger = logging.getLogger("bridge")

#: Seconds in which somebody comes back.
_WITHIN = 600


def begin(request: Request) -> Response:
    """Send somebody to the issuer, and remember in their browser where they were going."""
    # A link leads here: a form may be sent to this site alone (`form-action`), also by what it is sent on to.
    then = way(request.query_params.get("then", ""))
    try:
        there, sealed = _issuer(request).begin(then)
    except (IssuerUnavailable, TooManySignIn) as error:
        return _not_now(request, error, then)
    answer = RedirectResponse(there, 303)
    cookies.keep_begun(request, answer, sealed, _WITHIN)
    return answer


def back(request: Request) -> Response:
    """Sign in who comes back, and go on to where they were going."""
    try:
        person, then = _issuer(request).end(cookies.begun(request), request.query_params)
    except (IssuerUnavailable, TooManySignIn) as error:
        answer = _not_now(request, error, "/")
    except SignInRefused as error:
        logger.warning("a sign-in by the issuer was refused: %s", error)
        answer = signing.page(request, 403, then="/", words=str(error))
    else:
        cookie = console.of(request).sessions.begin_issued(person)
        answer = signing.signed_in(request, cookie, way(then))
    cookies.take_begun(request, answer)
    return answer


def _not_now(request: Request, error: Exception, then: str) -> Response:
    logger.warning("nobody was signed in by the issuer: %s", error)
    return signing.page(request, 503, then=then, words=str(error))


def _issuer(request: Request) -> "SigningIn":
    found = console.of(request).issuer
    if found is None:
        raise HTTPException(404)
    return found
