"""Browser sessions: their cookies, known devices, and the one-time link of a console without users."""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from bridge.console.auth.authorization import Principal
from bridge.console.auth.http_security import is_loopback_host
from bridge.deadletters.accounts.account_session import SESSION_LASTS, IssuedPerson
from bridge.deadletters.db.account_rows import UserSecret
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import DeskUnavailable

#: `__Host-`: over HTTPS only, for this host only, for all its paths (RFC 6265bis).
SESSION_COOKIE: Final = "__Host-bridge"
#: On localhost without TLS: there Chrome accepts no `__Host-` cookie, and Safari no Secure one.
LOCAL_SESSION_COOKIE: Final = "bridge"
#: The cookie of an OpenID Connect sign-in in progress.
OIDC_COOKIE: Final = "__Host-bridge-begun"
LOCAL_OIDC_COOKIE: Final = "bridge-begun"
#: The cookie that proves that a user has signed in with this browser before.
DEVICE_COOKIE: Final = "__Host-bridge-device"
LOCAL_DEVICE_COOKIE: Final = "bridge-device"
#: The cookie that says what was done by the form before a page.
CONFIRMATION_COOKIE: Final = "__Host-bridge-done"
LOCAL_CONFIRMATION_COOKIE: Final = "bridge-done"
#: The seconds for which a device is known.
DEVICE_SECONDS: Final = 90 * 86_400


def read_session_cookie(request: Request) -> str | None:
    """Return the session cookie of a request, under the name that it must have."""
    return request.cookies.get(SESSION_COOKIE if _is_secure(request) else LOCAL_SESSION_COOKIE)


def set_session_cookie(request: Request, answer: Response, cookie: str) -> None:
    """Set the session cookie."""
    secure = _is_secure(request)
    name, seconds = SESSION_COOKIE if secure else LOCAL_SESSION_COOKIE, SESSION_LASTS // 1_000
    answer.set_cookie(name, cookie, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def clear_session_cookie(request: Request, answer: Response) -> None:
    """Delete the session cookie."""
    secure = _is_secure(request)
    answer.delete_cookie(
        SESSION_COOKIE if secure else LOCAL_SESSION_COOKIE, path="/", secure=secure, httponly=True, samesite="lax"
    )


def read_device_cookie(request: Request, name: str, password: str | None) -> str:
    """Return the proof that a user signed in with this browser before; "" if there is none."""
    known = request.cookies.get(DEVICE_COOKIE if _is_secure(request) else LOCAL_DEVICE_COOKIE, "")
    return known if password and hmac.compare_digest(known.encode(), _sign_device(name, password).encode()) else ""


def set_device_cookie(request: Request, answer: Response, user: str, password: str) -> None:
    """Set the device cookie; a new password invalidates it."""
    secure = _is_secure(request)
    name = DEVICE_COOKIE if secure else LOCAL_DEVICE_COOKIE
    answer.set_cookie(
        name,
        _sign_device(user, password),
        max_age=DEVICE_SECONDS,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def read_oidc_cookie(request: Request) -> str:
    """Return the state of an OpenID Connect sign-in that this browser has begun; "" if there is none."""
    return request.cookies.get(OIDC_COOKIE if _is_secure(request) else LOCAL_OIDC_COOKIE, "")


def set_oidc_cookie(request: Request, answer: Response, sealed: str, seconds: int) -> None:
    """Set the cookie of an OpenID Connect sign-in."""
    secure = _is_secure(request)
    name = OIDC_COOKIE if secure else LOCAL_OIDC_COOKIE
    answer.set_cookie(name, sealed, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def clear_oidc_cookie(request: Request, answer: Response) -> None:
    """Delete the cookie of an OpenID Connect sign-in."""
    secure = _is_secure(request)
    answer.delete_cookie(
        OIDC_COOKIE if secure else LOCAL_OIDC_COOKIE, path="/", secure=secure, httponly=True, samesite="lax"
    )


def read_confirmation_cookie(request: Request) -> str:
    """Return the sealed confirmation of what was done last; "" if there is none."""
    return request.cookies.get(CONFIRMATION_COOKIE if _is_secure(request) else LOCAL_CONFIRMATION_COOKIE, "")


def set_confirmation_cookie(request: Request, answer: Response, sealed: str, seconds: int) -> None:
    """Set the cookie of a confirmation."""
    secure = _is_secure(request)
    name = CONFIRMATION_COOKIE if secure else LOCAL_CONFIRMATION_COOKIE
    answer.set_cookie(name, sealed, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def clear_confirmation_cookie(request: Request, answer: Response) -> None:
    """Delete the cookie of a confirmation."""
    secure = _is_secure(request)
    name = CONFIRMATION_COOKIE if secure else LOCAL_CONFIRMATION_COOKIE
    answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")


def digest_cookie(cookie: str) -> bytes:
    """Return the digest by which the database finds a session."""
    return hashlib.sha256(cookie.encode()).digest()


def derive_form_token(cookie: str) -> str:
    """Return the token that each form of a session must carry; the cookie cannot be derived from it."""
    return hmac.digest(cookie.encode(), b"form", "sha256").hex()


def _sign_device(name: str, password: str) -> str:
    # A browser has nothing from which the hash of a password can be derived.
    return hmac.digest(password.encode(), f"device of {name}".encode(), "sha256").hex()


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, as far as that is known behind a proxy."""
    over_tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").lower())
    return over_tls or not is_loopback_host(request.headers.get("host", ""))


@dataclass
class BrowserSessions:
    """The browser sessions, in the database, and the one-time link of this process.

    Parameters:
        clock: ms since the epoch.
    """

    desk: DeadLetterService = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _link: bytes | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, secret: UserSecret) -> str | None:
        """Sign in a user and return the value of a new cookie; `None` if the password has just been changed."""
        cookie = secrets.token_urlsafe(32)
        return cookie if self.desk.sessions.begin(digest_cookie(cookie), secret, self.clock()) else None

    def begin_by_link(self, token: str) -> str | None:
        """Sign in by the one-time link and return a cookie; `None` if it is wrong or there are users by now.

        Raises:
            DeskUnavailable: the database does not respond; the link stays valid.
        """
        if not self.use_link(token):
            return None
        cookie = secrets.token_urlsafe(32)
        try:
            return cookie if self.desk.sessions.begin_by_link(digest_cookie(cookie), self.clock()) else None
        except DeskUnavailable:
            with self._lock:
                # Unless there is a newer one.
                self._link = self._link or digest_cookie(token)
            raise

    def begin_issued(self, person: IssuedPerson) -> str:
        """Sign in a user of an issuer, and return the value of a new cookie."""
        cookie = secrets.token_urlsafe(32)
        self.desk.issued.begin(digest_cookie(cookie), person, self.clock())
        return cookie

    def who(self, cookie: str | None) -> Principal | None:
        """Return the principal of a cookie; `None` if its session does not exist or has ended."""
        if not cookie:
            return None
        found = self.desk.sessions.who(digest_cookie(cookie), self.clock())
        if found is None:
            return self._issued(cookie)
        return Principal(found.name, found.role, derive_form_token(cookie), scope=found.scope)

    def _issued(self, cookie: str) -> Principal | None:
        said = self.desk.settings.environment
        issuer = said.DEADLETTERS_OIDC_ISSUER
        found = self.desk.issued.who(digest_cookie(cookie), issuer, self.clock()) if issuer else None
        if found is None:
            return None
        # A session that began before the claim was set does not see everything: the claim is read at a sign-in.
        if (said.DEADLETTERS_OIDC_TOPICS_CLAIM and not found.scope.topics) or (
            said.DEADLETTERS_OIDC_CONSUMER_GROUPS_CLAIM and not found.scope.consumer_groups
        ):
            return None
        return Principal(found.name, found.role, derive_form_token(cookie), issuer=issuer, scope=found.scope)

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        if cookie:
            self.desk.sessions.end(digest_cookie(cookie))
            self.desk.issued.end(digest_cookie(cookie))

    def new_link(self) -> str:
        """Return the token of a new one-time link, which replaces an earlier one."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._link = digest_cookie(token)
        return token

    def use_link(self, token: str) -> bool:
        """Use up the one-time link, and return whether the token is its."""
        with self._lock:
            fits = self._link is not None and hmac.compare_digest(self._link, digest_cookie(token))
            if fits:
                self._link = None
            return fits
