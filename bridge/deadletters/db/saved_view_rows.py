"""The rows of saved views."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from bridge.deadletters.db.table_definitions import saved_views


class SavedView(NamedTuple):
    """A filter of the list of letters with a name.

    Attributes:
        owner: the user's name; "": it is for all.
        fields: the words of the filter's fields, and texts as people write them.
    """

    id: int
    owner: str
    name: str
    fields: tuple[tuple[str, str], ...]


def read_views(connection: Connection, owners: Sequence[str]) -> list[SavedView]:
    """Return the views of these owners, by name."""
    columns = [saved_views.c[name] for name in SavedView._fields]
    found = select(*columns).where(saved_views.c.owner.in_(owners)).order_by(saved_views.c.name, saved_views.c.id)
    return [
        SavedView(row.id, row.owner, row.name, tuple((word, text) for word, text in json.loads(row.fields)))
        for row in connection.execute(found)
    ]


def put_view(connection: Connection, owner: str, name: str, fields: str, at: int) -> None:
    """Store a view in place of one of the same owner and name.

    Parameters:
        fields: as JSON.
    """
    connection.execute(delete(saved_views).where(saved_views.c.owner == owner, saved_views.c.name == name))
    connection.execute(insert(saved_views).values(owner=owner, name=name, fields=fields, at=at))


def remove_view(connection: Connection, id_: int, owners: Sequence[str]) -> None:
    """Remove a view, if it is of one of these owners."""
    connection.execute(delete(saved_views).where(saved_views.c.id == id_, saved_views.c.owner.in_(owners)))
