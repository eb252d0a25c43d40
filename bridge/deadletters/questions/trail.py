"""Who did what, when and why: the trail, a page at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bridge.deadletters.store import clock, trail
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.trail import Entry


class Done(NamedTuple):
    """A part of the trail, newest first.

    Attributes:
        next: behind which entry it goes on; `None`: there is no more.
    """

    entries: tuple[Entry, ...]
    next: int | None


@dataclass(frozen=True)
class Trail:
    """What people did, and plans. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def page(self, by: str = "", what: Sequence[str] = (), before: int | None = None, limit: int = 50) -> Done:
        """What was done, newest first.

        Parameters:
            by: who, as they are named; empty: anybody.
            what: "replay", "note", …; empty: anything.
            before: `next` of the page that it follows.
        """
        with self.database.reading() as connection:
            found = trail.page(connection, by, what, before, limit + 1)
        more = len(found) > limit
        return Done(tuple(found[:limit]), found[limit - 1].id if more else None)

    def add(self, by: str, what: str, said: str) -> None:
        """Write down what somebody did that is not the database's: halted a topic, changed a policy."""
        with self.database.writing() as connection:
            trail.write(connection, clock.now(connection), by, what, said)
