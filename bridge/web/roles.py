"""Who may do what in the console (pure)."""

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """What somebody may: each all that those before may."""

    NOBODY = 0
    """Not signed in: signing in, and what every page needs."""
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    def __str__(self) -> str:
        """As it is written: `operator`."""
        return self.name.lower()


class Who(NamedTuple):
    """Somebody who asks for a page.

    Attributes:
        name: for the trail.
        token: of the session, which a form must bring along; "" where there is no session.
    """

    name: str
    role: Role
    token: str = ""


NOBODY = Who("", Role.NOBODY)
