"""By what groups are listed, and in which order (pure)."""

from enum import StrEnum
from typing import NamedTuple


class Order(StrEnum):
    """By what groups are listed."""

    NEED = "need"
    """What needs a person first: what grows, what failed again though it was fixed, what has most open letters."""
    NEWEST = "newest"
    OPEN = "open"


class Ranked(NamedTuple):
    """A group, by what it stands where it does in a list; the largest stands first.

    Attributes:
        grows: failures since it grows; 0: it does not, or no letter of it is open.
        came_back: whether it failed again in the version in which it was fixed.
        last_at: ms since the epoch.
    """

    id: int
    error_class: str
    place: str
    open: int
    last_at: int
    is_fixed: bool
    came_back: bool
    grows: int

    def by(self, order: Order) -> tuple[int, ...]:
        """Where it stands in this order; no two are the same."""
        if order is Order.NEWEST:
            return self.last_at, self.id
        if order is Order.OPEN:
            return self.open, self.last_at, self.id
        return self.grows, self.came_back and self.open > 0, self.open, self.last_at, self.id
