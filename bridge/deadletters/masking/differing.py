"""How a plan changes its letters' values, for somebody who does not see all of them."""

from dataclasses import dataclass

from bridge.deadletters.masking.hidden import hidden, masked
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.mending.differences import difference
from bridge.deadletters.mending.mending import Difference
from bridge.deadletters.store import masked as stored
from bridge.deadletters.store import values
from bridge.deadletters.store.database import Database


@dataclass(frozen=True)
class Differing:
    """Raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: Masks

    def of(self, plan_id: int, count: int, after: int = 0) -> list[Difference]:
        """Of the next letters of a plan that it changes, by their ids; what is hidden is hidden on both sides.

        Parameters:
            after: the letter behind which it goes on.
        """
        with self.database.reading() as connection:
            found = values.edited(connection, plan_id, count, after)
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
        return told
