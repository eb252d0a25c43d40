"""What somebody may do at the desk (pure)."""

from enum import IntEnum


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

    @classmethod
    def read(cls, word: str) -> "Role | None":
        """The role that somebody can be given by this word; `None`: there is none."""
        return next((role for role in cls if role and str(role) == word), None)
