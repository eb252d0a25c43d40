"""Who is signed in: sessions, kept in this process, and the one-time link of a console without users."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bridge.web.roles import Role, Who

#: Seconds after which somebody signs in again.
LASTS: Final = 12 * 3600
#: `__Host-`: for this host alone, over HTTPS (or to this very machine), for all its paths (RFC 6265bis).
COOKIE: Final = "__Host-bridge"


@dataclass
class Sessions:
    """Sessions by the hash of their cookie: who reads this process's memory by a fault of ours has no cookie."""

    clock: Callable[[], float] = time.monotonic
    _of: dict[bytes, tuple[Who, float]] = field(default_factory=dict, repr=False)
    _link: bytes | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, name: str, role: Role) -> str:
        """Sign somebody in: the value of their cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            now = self.clock()
            self._of = {key: each for key, each in self._of.items() if each[1] > now}
            self._of[_hash(cookie)] = (Who(name, role, secrets.token_urlsafe(16)), now + LASTS)
        return cookie

    def who(self, cookie: str | None) -> Who | None:
        """Whose a cookie is; `None`: nobody's (any more)."""
        found = self._of.get(_hash(cookie)) if cookie else None
        return found[0] if found is not None and found[1] > self.clock() else None

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        with self._lock:
            self._of.pop(_hash(cookie or ""), None)

    def new_link(self) -> str:
        """The token of a link that signs in once; an earlier one is worth nothing from then on."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._link = _hash(token)
        return token

    def use_link(self, token: str) -> bool:
        """Whether a token is that of the link, which is used up by this."""
        with self._lock:
            fits = self._link is not None and hmac.compare_digest(self._link, _hash(token))
            if fits:
                self._link = None
            return fits


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
