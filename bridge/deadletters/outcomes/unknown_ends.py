"""Letters of which nobody can tell whether their replay ran: a person who has found out says how they ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store import clock, items, noted, statuses, trail, unknown_letters
from bridge.deadletters.store.database import Database

#: Letters that end in one transaction.
PAGE: Final = 1_000


@dataclass(frozen=True)
class UnknownEnds:
    """Letters that are `replaying` while their plan has their end as `unknown`.

    They may have run, so nothing but proof or a person ends that. Every method raises DeskUnavailable where the
    database does not answer.
    """

    database: Database

    def reopen(self, ids: Sequence[int], plan_id: int | None, why: str, by: str) -> list[int]:
        """Open the letters of these whose end is unknown, and return their ids; the others stay as they are.

        Parameters:
            ids: of letters; empty: all of a plan.
            why: for the audit log.
        """
        return self._end(ids, plan_id, why, by, Status.OPEN)

    def resolve(self, ids: Sequence[int], plan_id: int | None, why: str, by: str) -> list[int]:
        """Note that the letters of these whose end is unknown did run, and return their ids; the others stay.

        The ledger is told nothing. If a new dead letter of one is recorded later, that opens it.

        Parameters:
            ids, why: as `reopen`.
        """
        return self._end(ids, plan_id, why, by, Status.RESOLVED)

    def _end(self, ids: Sequence[int], plan_id: int | None, why: str, by: str, status: Status) -> list[int]:
        ended: list[int] = []
        while True:
            with self.database.writing() as connection:
                found = unknown_letters.page(connection, plan_id, ids or None, PAGE)
                at = clock.now(connection)
                names = noted.names(connection, found)
                moved = statuses.move(connection, found, Status.REPLAYING, status, at)
                if status is Status.RESOLVED:
                    items.ended(connection, moved, ItemState.DONE, at, f"it ran, says {by}: {why}")
                what = "reopen" if status is Status.OPEN else "resolve"
                for id_ in moved:
                    trail.write(connection, at, by, what, why, letter_id=id_, letter=names[id_])
            ended += moved
            if not moved:
                return ended
