"""Notes: what people say of letters and of groups, kept in the trail."""

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.deadletters.questions.shown import Act
from bridge.deadletters.store import clock, noted, trail
from bridge.deadletters.store.database import Database
from bridge.errors import NoSuchGroup, NoSuchLetter


@dataclass(frozen=True)
class Notes:
    """What people say. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def on_letters(self, ids: Sequence[int], said: str, by: str) -> None:
        """Note something on each of these letters, or on none.

        Raises:
            NoSuchLetter: one is not there.
        """
        with self.database.writing() as connection:
            names = noted.names(connection, ids)
            if missing := [id_ for id_ in ids if id_ not in names]:
                raise NoSuchLetter(f"There is no dead letter {', '.join(map(str, missing))}: nothing was noted.")
            at = clock.now(connection)
            for id_ in dict.fromkeys(ids):
                trail.write(connection, at, by, "note", said, letter_id=id_, letter=names[id_])

    def on_group(self, id_: int, said: str, by: str) -> None:
        """Note something on a group: it stands with each of its letters.

        Raises:
            NoSuchGroup: there is none of that number.
        """
        with self.database.writing() as connection:
            if not noted.is_group(connection, id_):
                raise NoSuchGroup(f"There is no group {id_}: nothing was noted.")
            trail.write(connection, clock.now(connection), by, "note", said, group_id=id_)

    def of_group(self, id_: int) -> list[Act]:
        """What was said of a group, and done with it, oldest first."""
        with self.database.reading() as connection:
            found = trail.of(connection, group_id=id_)
        return [Act(each.at, each.by, each.what, each.said, each.plan_id) for each in found]
