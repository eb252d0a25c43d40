"""The sign-in by name and password: which is right, after how many wrong ones a name waits, and what is recorded."""

import logging
from typing import NamedTuple

from starlette.requests import Request

from bridge.console.auth import authentication, browser_session, passwords
from bridge.console.auth.login_throttle import ThrottleVerdict
from bridge.console.console import Console
from bridge.deadletters.db.account_rows import UserSecret

logger = logging.getLogger("bridge")


class PasswordSignIn(NamedTuple):
    """The result of a sign-in by name and password.

    Attributes:
        verdict: of the throttle; if it waits, no password was tried.
        cookie: of the new session; `None` if the sign-in is refused.
        password: the stored hash, which signs the cookie of this device.
    """

    verdict: ThrottleVerdict
    cookie: str | None = None
    password: str = ""


def sign_in_by_password(here: Console, request: Request, name: str, password: str) -> PasswordSignIn:
    """Begin a session for the user with this name and password, if they are right and the throttle lets them try.

    Raises:
        TooManySignIn: too many passwords are being checked; this one was not tried.
    """
    address = here.proxy.sender(authentication.get_peer_address(request), request.headers)
    stored = here.desk.users.secret(name)
    device = browser_session.read_device_cookie(request, name, stored and stored.password)
    verdict = here.login_throttle.guess(name, address, device)
    if verdict.waits:
        return PasswordSignIn(verdict)
    secret = _check_password(here, stored, password)
    cookie = here.sessions.begin(secret) if secret else None
    if secret is None or cookie is None:
        # The name stays out of the log: people type passwords into that field.
        logger.warning("sign-in to the console refused: wrong name or password, from %s", address)
        whose = f"wrong password for {name}" if stored else "a name that no user has"
        here.sign_in_audit.failed(f"{whose}, at {address}")
        return PasswordSignIn(verdict)
    here.login_throttle.right(name, address, device)
    here.sign_in_audit.signed_in(name, f"{name} signed in at {address}")
    return PasswordSignIn(verdict, cookie, secret.password)


def _check_password(here: Console, secret: UserSecret | None, password: str) -> UserSecret | None:
    """Return the user with this name and password; an unknown name takes the same time."""
    if not passwords.verify_password(secret and secret.password, password) or secret is None:
        return None
    renewed = passwords.renew_hash(secret.password, password)
    return here.desk.users.rehashed(secret, renewed) if renewed else secret
