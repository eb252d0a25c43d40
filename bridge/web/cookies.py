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
#: By which a browser proves that a user has signed in with it before.
DEVICE: Final = "__Host-bridge-device"
DEVICE_HERE: Final = "bridge-device"
#: Seconds for which a device is known.
KNOWN: Final = 90 * 86_400


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


def device(request: Request, name: str, password: str | None) -> str:
    """The proof that the user of this name and hash has signed in with this browser before; "": it has none."""
    known = request.cookies.get(DEVICE if _secure(request) else DEVICE_HERE, "")
    return known if password and hmac.compare_digest(known.encode(), _device(name, password).encode()) else ""


def keep_device(request: Request, answer: Response, user: str, password: str) -> None:
    """Have a browser keep that; another password makes it worth nothing."""
    secure = _secure(request)
    name = DEVICE if secure else DEVICE_HERE
    answer.set_cookie(
        name,
        _device(user, password),
        max_age=KNOWN,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


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


def _device(name: str, password: str) -> str:
    # The hash of a password follows from nothing that a browser has.
    return hmac.digest(password.encode(), f"device of {name}".encode(), "sha256").hex()


def _secure(request: Request) -> bool:
    """Whether the browser speaks TLS, for all that can be known behind a proxy."""
    over_tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())
    return over_tls or not is_here(request.headers.get("host", ""))
