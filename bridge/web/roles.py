"""Who asks the console, and what they may (pure)."""

from typing import NamedTuple

from bridge.deadletters.users.role import Role
from bridge.deadletters.users.sessions import BY_LINK

__all__ = ["NOBODY", "Role", "Who"]


class Who(NamedTuple):
    """Somebody who asks for a page.

    Attributes:
        name: for the trail.
        token: which a form must bring along; "" where nobody is signed in.
        issuer: of OpenID Connect, by whose word they are signed in; "": by nobody's.
        mark: by which a form is known as theirs when their session is over (bridge.web.keeping).
        signs_out: whether they have a session here: not, where a proxy says who they are.
    """

    name: str
    role: Role
    token: str = ""
    signs_out: bool = True
    mark: str = ""
    issuer: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether they may all."""
        return self.role >= Role.ADMIN

    @property
    def is_user(self) -> bool:
        """Whether they have a password here: not, whom a proxy or an issuer names, or who came by the one-time link."""
        return self.signs_out and not self.issuer and self.name not in ("", BY_LINK)

    @property
    def shown(self) -> str:
        """What stands in the bar on top."""
        return "No users yet: this machine alone" if self.name == BY_LINK and self.signs_out else self.name

    def __repr__(self) -> str:
        """Without the token and the mark."""
        return f"Who(name={self.name!r}, role={self.role})"


NOBODY = Who("", Role.NOBODY)
