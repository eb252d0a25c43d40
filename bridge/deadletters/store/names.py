"""The names that letters have had: what a person may have misspelt is none of them."""

from collections.abc import Sequence

from sqlalchemy import Column, Connection, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.store.schema import groups, kinds, letters, positions
from bridge.deadletters.store.statuses import in_parts

#: Of a filter's fields, where what they name is kept.
_COLUMNS: dict[str, Column[str]] = {
    "handlers": kinds.c.handler,
    "topics": kinds.c.topic,
    "reasons": kinds.c.reason,
    "origins": kinds.c.origin,
    "causes": kinds.c.cause,
}


def is_anything(connection: Connection) -> bool:
    """Whether anything was ever recorded here, or brought by an import."""
    return any(connection.execute(select(table.c[0]).limit(1)).first() for table in (positions, kinds))


def had(connection: Connection, field: str) -> list[str]:
    """What letters have had in the place of a field of a filter."""
    return sorted(connection.execute(select(_COLUMNS[field]).distinct()).scalars())


def not_there(connection: Connection, asked: Filter) -> tuple[Sequence[int], Sequence[int]]:
    """The letters, and the groups, that a filter names and that are not there."""
    found: set[int] = set()
    for some in in_parts(asked.ids):
        found |= set(connection.execute(select(letters.c.id).where(letters.c.id.in_(some))).scalars())
    there = set(connection.execute(select(groups.c.id).where(groups.c.id.in_(asked.groups))).scalars())
    return [id_ for id_ in asked.ids if id_ not in found], [id_ for id_ in asked.groups if id_ not in there]
