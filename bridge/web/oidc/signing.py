"""Signing in by an issuer, from the link on the sign-in page to the person who comes back."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bridge.deadletters.users.issued import Person
from bridge.deadletters.users.role import Role
from bridge.errors import SignInRefused
from bridge.settings.issuers import claimed_roles
from bridge.settings.values import EnvironmentSettings
from bridge.web.oidc import claims
from bridge.web.oidc.begun import Beginnings
from bridge.web.oidc.issuer import Client, Issuer

#: Where the issuer sends people back to: it must know this address.
BACK: Final = "/sign-in/oidc/back"
#: As RFC 6749 writes what is wrong; other words are the address's, which anybody can make.
_ERROR: Final = re.compile(r"[a-z_]{1,60}")


@dataclass(frozen=True)
class SigningIn:
    """Parameters:
    claim, roles, default: which claim says what somebody may, by which values, and what others may.
    """

    issuer: Issuer
    beginnings: Beginnings
    claim: str
    roles: Mapping[str, str]
    default: Role

    @classmethod
    def of(cls, said: EnvironmentSettings, clock: Callable[[], int]) -> "SigningIn":
        """By the issuer that is set."""
        client = Client(
            said.DEADLETTERS_OIDC_ISSUER,
            said.DEADLETTERS_OIDC_CLIENT_ID,
            said.DEADLETTERS_OIDC_CLIENT_SECRET,
            said.DEADLETTERS_OIDC_SCOPES,
            said.DEADLETTERS_CONSOLE_URL.rstrip("/") + BACK,
        )
        return cls(
            Issuer(client, clock),
            Beginnings(client.secret, clock),
            said.DEADLETTERS_OIDC_ROLE_CLAIM,
            claimed_roles(said.DEADLETTERS_OIDC_ROLES),
            Role.read(said.DEADLETTERS_OIDC_ROLE) or Role.NOBODY,
        )

    @property
    def host(self) -> str:
        """The issuer, for people."""
        return urlsplit(self.issuer.client.issuer).hostname or ""

    def begin(self, then: str) -> tuple[str, str]:
        """The issuer's address for this sign-in, and what the browser keeps meanwhile.

        Raises:
            IssuerUnavailable, TooManySignIn: the issuer could not be asked.
        """
        begun = self.beginnings.begin(then)
        return self.issuer.way(begun), self.beginnings.sealed(begun)

    def end(self, sealed: str, said: Mapping[str, str]) -> tuple[Person, str]:
        """Who has come back, and where they go on.

        Parameters:
            sealed: what the browser has kept; "": nothing.
            said: the parameters of the address.

        Raises:
            IssuerUnavailable, TooManySignIn: the issuer could not be asked.
            SignInRefused: it is not believed, or they have no role.
        """
        begun = self.beginnings.opened(sealed, said.get("state", ""))
        if begun is None:
            raise SignInRefused(
                "This sign-in was not begun in this browser, or was ended already, or took more than ten minutes: sign "
                f"in anew, at {self.issuer.client.back.removesuffix(BACK)}."
            )
        # RFC 9207: who has come from another issuer brings that one's code.
        if said.get("iss", self.issuer.client.issuer) != self.issuer.client.issuer:
            raise SignInRefused("Another issuer has sent you back than the one that you were sent to: sign in anew.")
        if "code" not in said:
            word = said.get("error", "")
            raise SignInRefused(
                f"The issuer has not signed you in: {word if _ERROR.fullmatch(word) else 'it sent no code'}."
            )
        found = self.issuer.claims(begun, said["code"])
        return claims.person(found, self.claim, self.roles, self.default), begun.then
