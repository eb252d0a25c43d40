"""Saved views: the filters of the list of letters that users, or all of them, find by a name."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.db import saved_view_rows, sql
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.saved_view_rows import SavedView
from bridge.errors import FilterFault

#: Most views of a user, and of all together.
MOST_VIEWS: Final = 50
#: Most characters of a name, and of a filter.
LONGEST_NAME: Final = 60
LONGEST_FILTER: Final = 2_000
#: The owner of views for all users.
EVERYBODY: Final = ""


@dataclass(frozen=True)
class SavedViews:
    """The saved views. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def of(self, user: str) -> list[SavedView]:
        """Return the views of a user and those for all, by name; a user with a scope sees their own alone."""
        with self.database.reading() as connection:
            return saved_view_rows.read_views(connection, [user, EVERYBODY])

    def save(self, owner: str, name: str, fields: Sequence[tuple[str, str]]) -> None:
        """Save a view; one of the same owner and name is replaced.

        Parameters:
            owner: a user, or `EVERYBODY`.
            fields: words of the filter's fields, and texts as people write them (`since`, `24h`).

        Raises:
            FilterFault: the name is invalid, the filter is empty or too long, or there are too many views.
        """
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise FilterFault(f"A view has a name of 1 to {LONGEST_NAME} characters. Nothing was saved.")
        written = json.dumps(fields)
        if not fields or len(written) > LONGEST_FILTER:
            raise FilterFault(f"A view has a filter of 1 to {LONGEST_FILTER:,} characters. Nothing was saved.")
        with self.database.writing() as connection:
            names = [each.name for each in saved_view_rows.read_views(connection, [owner])]
            if name not in names and len(names) >= MOST_VIEWS:
                raise FilterFault(f"There are {MOST_VIEWS} views already: remove one first. Nothing was saved.")
            saved_view_rows.put_view(connection, owner, name, written, sql.read_clock(connection))

    def remove(self, id_: int, owners: list[str]) -> None:
        """Remove a view of one of these owners; one that does not exist any more is no error."""
        with self.database.writing() as connection:
            saved_view_rows.remove_view(connection, id_, owners)
