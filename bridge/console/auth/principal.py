"""The principal of a request: its name, its role and its session."""

from typing import Final, NamedTuple

from bridge.deadletters.accounts.account_session import BY_LINK
from bridge.deadletters.accounts.user_account import Role


class Principal(NamedTuple):
    """The user or program that sends a request.

    Attributes:
        name: as the audit log has it.
        token: the form token of its session; "" if nobody is signed in.
        issuer: the OpenID Connect issuer that signed it in; "": none.
        mark: identifies its forms after its session has ended (bridge.console.form_drafts).
        signs_out: whether it has a session here; not if a proxy signs it in.
    """

    name: str
    role: Role
    token: str = ""
    signs_out: bool = True
    mark: str = ""
    issuer: str = ""

    @property
    def is_admin(self) -> bool:
        """Return whether it is an admin."""
        return self.role >= Role.ADMIN

    @property
    def is_user(self) -> bool:
        """Return whether it has a password here: not if a proxy, an issuer or the one-time link signed it in."""
        return self.signs_out and not self.issuer and self.name not in ("", BY_LINK)

    @property
    def shown(self) -> str:
        """Return the name that the top bar shows."""
        return "No users yet: this machine alone" if self.name == BY_LINK and self.signs_out else self.name

    def __repr__(self) -> str:
        """Return the principal without its token and mark."""
        return f"Principal(name={self.name!r}, role={self.role})"


#: The principal of a request without a sign-in.
ANONYMOUS: Final = Principal("", Role.NOBODY)
