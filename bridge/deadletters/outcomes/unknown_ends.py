"""Letters of which nobody can tell whether their replay ran: a person opens them again, who has found out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store import clock, noted, statuses, trail, unknown_letters
from bridge.deadletters.store.database import Database

#: Letters that are opened in one transaction.
PAGE: Final = 1_000


@dataclass(frozen=True)
class UnknownEnds:
    """Letters that are `replaying` while their plan has their end as `unknown`.

    They may have run, so nothing but proof or a person opens them. Every method raises DeskUnavailable where the
    database does not answer.
    """

    database: Database

    def reopen(self, ids: Sequence[int], plan_id: int | None, why: str, by: str) -> list[int]:
        """Open the letters of these whose end is unknown, and return their ids; the others stay as they are.

        Parameters:
            ids: of letters; empty: all of a plan.
            why: for the trail.
        """
        opened: list[int] = []
        while True:
            with self.database.writing() as connection:
                found = unknown_letters.page(connection, plan_id, ids or None, PAGE)
                at = clock.now(connection)
                names = noted.names(connection, found)
                moved = statuses.move(connection, found, Status.REPLAYING, Status.OPEN, at)
                for id_ in moved:
                    trail.write(connection, at, by, "reopen", why, letter_id=id_, letter=names[id_])
            opened += moved
            if not moved:
                return opened
