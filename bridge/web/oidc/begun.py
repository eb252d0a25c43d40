"""A sign-in that was begun: sealed in a cookie of the browser that began it, for ten minutes, to be ended once.

So nothing is kept for who begins and never ends, and any console of the same settings can end it.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

#: Ms in which a sign-in is ended.
LASTS: Final = 600_000
#: Characters of where it goes on; a browser keeps no cookie that is much longer.
LONGEST: Final = 2_000
#: Ended ones that are known at a time, of this process; the issuer takes a code once, too.
_KNOWN: Final = 10_000
_HEADER: Final = {"alg": "dir", "enc": "A256GCM"}


class Begun(NamedTuple):
    """What the issuer's answer must fit.

    Attributes:
        state: comes back in the address.
        nonce: comes back in the token.
        verifier: what only this sign-in can exchange the code with (PKCE, RFC 7636).
        then: where it goes on.
        until: ms since the epoch.
    """

    state: str
    nonce: str
    verifier: str
    then: str
    until: int

    @property
    def challenge(self) -> str:
        """The verifier's hash, which the issuer is told first."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Begun(until={self.until})"


@dataclass
class Beginnings:
    """Parameters:
    secret: that of the client; the key is made of it.
    clock: ms since the epoch.
    """

    secret: str = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _ended: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def begin(self, then: str) -> Begun:
        """A new one."""
        fits = then if len(then) <= LONGEST else "/"
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return Begun(state, nonce, verifier, fits, self.clock() + LASTS)

    def sealed(self, begun: Begun) -> str:
        """As a browser keeps it: it can neither be read nor be changed there."""
        return jwe.encrypt_compact(dict(_HEADER), json.dumps(begun), self._key())

    def opened(self, sealed: str, state: str) -> Begun | None:
        """The sign-in that this browser has begun, by its state, once; `None`: there is none, or it took too long."""
        try:
            plain = jwe.decrypt_compact(sealed, self._key(), algorithms=list(_HEADER.values())).plaintext
            begun = Begun(*json.loads(plain or b""))
        except (JoseError, ValueError, TypeError):
            return None
        fits = hmac.compare_digest(begun.state.encode(), state.encode("utf-8", "replace"))
        return begun if fits and self.clock() < begun.until and self._first(begun) else None

    def _first(self, begun: Begun) -> bool:
        with self._lock:
            if begun.state in self._ended:
                return False
            now = self.clock()
            self._ended = {state: until for state, until in self._ended.items() if until > now}
            self._ended[begun.state] = begun.until
            if len(self._ended) > _KNOWN:
                del self._ended[next(iter(self._ended))]
            return True

    def _key(self) -> OctKey:
        return OctKey.import_key(hmac.digest(self.secret.encode(), b"bridge: a sign-in that was begun", "sha256"))
