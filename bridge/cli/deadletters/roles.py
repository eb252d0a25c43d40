"""A role, as commands take it."""

from enum import StrEnum


class Given(StrEnum):
    """A role that somebody can be given."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
