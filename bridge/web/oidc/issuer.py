"""The issuer of OpenID Connect: where its doors are, where a browser goes, and what a code is exchanged for."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote_plus, urlencode

from bridge.errors import IssuerUnavailable, SignInRefused, TooManySignIn
from bridge.settings.issuers import may_be_asked
from bridge.web.oidc import asking, id_tokens
from bridge.web.oidc.begun import Begun

_Answer = TypeVar("_Answer")
#: Where an issuer says of itself what it has (OpenID Connect Discovery 4).
DOCUMENT: Final = "/.well-known/openid-configuration"
#: Ms for which that is taken for true; and for which one that did not answer is not asked again.
KNOWN_FOR: Final = 3_600_000
SILENT_FOR: Final = 5_000
#: At a time: more would keep the threads that answer people who are signed in.
_AT_ONCE: Final = threading.BoundedSemaphore(5)


class Client(NamedTuple):
    """What the console is to the issuer; its repr does not show the secret.

    Attributes:
        back: the address to which people are sent back.
    """

    issuer: str
    id: str
    secret: str
    scopes: str
    back: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Client(issuer={self.issuer!r}, id={self.id!r})"


class Doors(NamedTuple):
    """Addresses of an issuer.

    Attributes:
        basic: whether the client says its secret in a header, and not in the form.
    """

    authorization: str
    token: str
    keys: str
    basic: bool


def doors(said: Mapping[str, Any], issuer: str) -> Doors:
    """Read an issuer's document.

    Raises:
        IssuerUnavailable: it is another's, or lacks an address, or has one that is not safe.
    """
    if said.get("issuer") != issuer:
        raise IssuerUnavailable(
            f"its document is not of this issuer: DEADLETTERS_OIDC_ISSUER must be what {DOCUMENT} says, to the letter"
        )
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    authorization, token, keys = (str(said.get(name)) for name in names)
    if not all(may_be_asked(each.partition("?")[0]) for each in (authorization, token, keys)):
        raise IssuerUnavailable("its document lacks an address, or has one without https://")
    methods = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Doors(authorization, token, keys, "client_secret_basic" in methods)


@dataclass
class Issuer:
    """One issuer, asked when somebody signs in and never before: a console starts without it.

    Parameters:
        clock: ms since the epoch.
    """

    client: Client
    clock: Callable[[], int] = field(repr=False)
    _doors: Doors | None = field(default=None, init=False, repr=False)
    _until: int = field(default=0, init=False, repr=False)
    _silent: str = field(default="", init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def way(self, begun: Begun) -> str:
        """The address to which a browser goes to sign in.

        Raises:
            IssuerUnavailable, TooManySignIn: it could not be asked where that is.
        """
        door = self._asked(self._known).authorization
        asked = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.client.back,
            "scope": self.client.scopes,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        return f"{door}{'&' if '?' in door else '?'}{urlencode(asked)}"

    def claims(self, begun: Begun, code: str) -> dict[str, Any]:
        """What it says of who has signed in there; the keys are asked for each time, so that none is out of date.

        Raises:
            IssuerUnavailable, TooManySignIn: it could not be asked.
            SignInRefused: it does not take the code, or its token is not taken.
        """
        token, keys = self._asked(lambda: self._exchanged(begun, code))
        return id_tokens.verified(token, keys, self.client.issuer, self.client.id, begun.nonce)

    def _exchanged(self, begun: Begun, code: str) -> tuple[str, dict[str, Any]]:
        door = self._known()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.back,
            "code_verifier": begun.verifier,
        }
        named = {"client_id": self.client.id, "client_secret": self.client.secret}
        # RFC 6749, 2.3.1: encoded before it goes into the header.
        basic = (quote_plus(self.client.id), quote_plus(self.client.secret)) if door.basic else None
        status, said = asking.post(door.token, form if basic else form | named, basic)
        if status >= 500:
            raise IssuerUnavailable(f"it answers {status}")
        token = said.get("id_token")
        if status != 200 or not isinstance(token, str):
            raise SignInRefused(
                f"The issuer does not take the code that your browser brought (it answers {status}): it works once, "
                "and for a short time. Sign in anew; if that does not help, the client's settings there are not these."
            )
        return token, asking.get(door.keys)

    def _known(self) -> Doors:
        with self._lock:
            if self.clock() < self._until:
                if self._doors is None:
                    raise IssuerUnavailable(self._silent)
                return self._doors
        try:
            found = doors(asking.get(self.client.issuer.rstrip("/") + DOCUMENT), self.client.issuer)
        except IssuerUnavailable as error:
            self._know(None, SILENT_FOR, str(error))
            raise
        self._know(found, KNOWN_FOR)
        return found

    def _know(self, found: Doors | None, ms: int, silent: str = "") -> None:
        with self._lock:
            self._doors, self._until, self._silent = found, self.clock() + ms, silent

    def _asked(self, what: Callable[[], _Answer]) -> _Answer:
        if not _AT_ONCE.acquire(blocking=False):
            raise TooManySignIn("Too many sign in at this moment: try again in some seconds.")
        try:
            return what()
        except IssuerUnavailable as error:
            raise IssuerUnavailable(
                f"The issuer {self.client.issuer} could not be asked: {error}. Nobody signs in by it until it can; who "
                "is signed in stays so, and who has a password here signs in by name."
            ) from None
        finally:
            _AT_ONCE.release()
