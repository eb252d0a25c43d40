"""The cookie that a session is known by."""

import hashlib
import hmac
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.users.sessions import LASTS
from bridge.web.origins import is_here

#: `__Host-`: over HTTPS alone, for this host alone, for all its paths (RFC 6265bis).
COOKIE: Final = "__Host-bridge"
#: On this machine, without TLS: Chrome takes no `__Host-` there, Safari nothing that is Secure.
HERE: Final = "bridge"
#: While somebody signs in by an issuer (bridge.web.oidc).
BEGUN: Final = "__Host-bridge-begun"
BEGUN_HERE: Final = "bridge-begun"


def given(request: Request) -> str | None:
    """The cookie of a request, under the name that it must have."""
    return request.cookies.get(COOKIE if _secure(request) else HERE)


def give(request: Request, answer: Response, cookie: str) -> None:
    """Have a browser keep it."""
    secure = _secure(request)
    name, seconds = COOKIE if secure else HERE, LASTS // 1_000
    answer.set_cookie(name, cookie, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def take(request: Request, answer: Response) -> None:
    """Have a browser forget it."""
    secure = _secure(request)
    answer.delete_cookie(COOKIE if secure else HERE, path="/", secure=secure, httponly=True, samesite="lax")


def begun(request: Request) -> str:
    """What a browser keeps of a sign-in by an issuer that it has begun; "": nothing."""
    return request.cookies.get(BEGUN if _secure(request) else BEGUN_HERE, "")


def keep_begun(request: Request, answer: Response, sealed: str, seconds: int) -> None:
    """Have a browser keep that."""
    secure = _secure(request)
    name = BEGUN if secure else BEGUN_HERE
    answer.set_cookie(name, sealed, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def take_begun(request: Request, answer: Response) -> None:
    """Have a browser forget that."""
    secure = _secure(request)
    answer.delete_cookie(BEGUN if secure else BEGUN_HERE, path="/", secure=secure, httponly=True, samesite="lax")


def digest(cookie: str) -> bytes:
    """By what it is found in the database."""
    return hashlib.sha256(cookie.encode()).digest()


def token(cookie: str) -> str:
    """What a form of this session must bring along; the cookie does not follow from it."""
    return hmac.digest(cookie.encode(), b"form", "sha256").hex()


def _secure(request: Request) -> bool:
    """Whether the browser speaks TLS, for all that can be known behind a proxy."""
    over_tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())
    return over_tls or not is_here(request.headers.get("host", ""))
