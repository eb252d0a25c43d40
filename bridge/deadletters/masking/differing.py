"""How a plan changes its letters' values, for somebody who does not see all of them."""

from dataclasses import dataclass
from typing import NamedTuple

from bridge.deadletters.masking.hidden import hidden, masked
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.mending.differences import difference
from bridge.deadletters.mending.mending import Difference
from bridge.deadletters.store import masked as stored
from bridge.deadletters.store import values
from bridge.deadletters.store.database import Database


class Page(NamedTuple):
    """Some of the differences of a plan.

    Attributes:
        next: behind which letter it goes on; `None`: there are no more.
    """

    differences: list[Difference]
    next: int | None


@dataclass(frozen=True)
class Differing:
    """Raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: Masks

    def page(self, plan_id: int, count: int, after: int = 0) -> Page:
        """Of the next letters of a plan that it changes, by their ids: so many, or fewer where their values are large.

        What is hidden is hidden on both sides.

        Parameters:
            after: the letter behind which it goes on.
        """
        with self.database.reading() as connection:
            found = values.edited(connection, plan_id, count, after)
            more = bool(found) and values.edits_after(connection, plan_id, found[-1][0].id)
            known = stored.contents(connection, [letter.id for letter, _ in found], 0) if self.masks else {}
        told = []
        for letter, value in found:
            sides = [letter.value, value]
            if self.masks:
                if letter.id not in known:
                    # It was cleaned up this moment: nobody knows any more what of it is hidden.
                    continue
                fields = self.masks.of(known[letter.id].topic)
                sides = [masked(each, hidden(each, fields)) for each in sides]
            told.append(Difference(letter.id, difference(*sides)))
        return Page(told, found[-1][0].id if more else None)
