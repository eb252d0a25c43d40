"""Who is signed in, by their cookie; and the one-time link of a console without users."""

import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from bridge.deadletters.desk import Desk
from bridge.deadletters.store.users import Secret
from bridge.deadletters.users.issued import Person
from bridge.errors import DeskUnavailable
from bridge.web import cookies
from bridge.web.roles import Who


@dataclass
class Sessions:
    """Sessions are the desk's, in its database; the link is this process's, and ends with it.

    Parameters:
        clock: ms since the epoch.
    """

    desk: Desk = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _link: bytes | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, secret: Secret) -> str | None:
        """Sign in a user: the value of a new cookie; `None`: their password was changed this moment."""
        cookie = secrets.token_urlsafe(32)
        return cookie if self.desk.sessions.begin(cookies.digest(cookie), secret, self.clock()) else None

    def begin_by_link(self, token: str) -> str | None:
        """Sign in who has the link: the value of a new cookie; `None`: it is not that, or there are users by now.

        Raises:
            DeskUnavailable: the database did not answer; the link is as good as before.
        """
        if not self.use_link(token):
            return None
        cookie = secrets.token_urlsafe(32)
        try:
            return cookie if self.desk.sessions.begin_by_link(cookies.digest(cookie), self.clock()) else None
        except DeskUnavailable:
            with self._lock:
                # Unless there is a newer one.
                self._link = self._link or cookies.digest(token)
            raise

    def begin_issued(self, person: Person) -> str:
        """Sign in whom an issuer has named: the value of a new cookie."""
        cookie = secrets.token_urlsafe(32)
        self.desk.issued.begin(cookies.digest(cookie), person, self.clock())
        return cookie

    def who(self, cookie: str | None) -> Who | None:
        """Whose a cookie is; `None`: nobody's (any more)."""
        if not cookie:
            return None
        found = self.desk.sessions.who(cookies.digest(cookie), self.clock())
        return Who(*found, cookies.token(cookie)) if found else self._issued(cookie)

    def _issued(self, cookie: str) -> Who | None:
        issuer = self.desk.settings.environment.DEADLETTERS_OIDC_ISSUER
        found = self.desk.issued.who(cookies.digest(cookie), issuer, self.clock()) if issuer else None
        return Who(*found, cookies.token(cookie), issuer=issuer) if found else None

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        if cookie:
            self.desk.sessions.end(cookies.digest(cookie))
            self.desk.issued.end(cookies.digest(cookie))

    def new_link(self) -> str:
        """The token of a link that signs in once; an earlier one is worth nothing from then on."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._link = cookies.digest(token)
        return token

    def use_link(self, token: str) -> bool:
        """Whether a token is that of the link, which is used up by this."""
        with self._lock:
            fits = self._link is not None and hmac.compare_digest(self._link, cookies.digest(token))
            if fits:
                self._link = None
            return fits
