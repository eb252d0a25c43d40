"""The alarms that stand, and the groups of which nobody was told yet.

Recorders look beside each other. What one has seen counts only where no other has changed anything since: the looks
that changed any alarm are numbered.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from bridge.deadletters.store.schema import alarms, groups

#: The row that has the number of the last look that changed any, as its time.
_NUMBER: Final = ""


class Row(NamedTuple):
    """An alarm as it was noted.

    Attributes:
        at: since when, ms since the epoch.
    """

    about: str
    name: str
    at: int
    data: Mapping[str, Any]


def look(connection: Connection) -> int:
    """The number of the last look that changed any."""
    return int(connection.execute(select(alarms.c.at).where(alarms.c.key == _NUMBER)).scalar_one())


def changes(connection: Connection, seen: int) -> bool:
    """Begin to change them, by what was looked at when `seen` was the last look; not where another was quicker."""
    mine = update(alarms).where(alarms.c.key == _NUMBER, alarms.c.at == seen)
    return connection.execute(mine.values(at=seen + 1)).rowcount == 1


def standing(connection: Connection, about: Collection[str]) -> dict[str, Row]:
    """By key, those that were noted and have not ended."""
    asked = select(alarms).where(alarms.c.about.in_(about))
    return {row.key: Row(row.about, row.name, row.at, json.loads(row.data)) for row in connection.execute(asked)}


def begin(connection: Connection, key: str, row: Row) -> None:
    """Note one."""
    connection.execute(insert(alarms).values({"key": key, **row._asdict(), "data": json.dumps(row.data)}))


def end(connection: Connection, key: str) -> None:
    """Note that one has ended."""
    connection.execute(delete(alarms).where(alarms.c.key == key))


def untold(connection: Connection, limit: int) -> list[int]:
    """Groups of which it was not noticed yet that they are new, oldest first."""
    asked = select(groups.c.id).where(groups.c.told_at.is_(None)).order_by(groups.c.id).limit(limit)
    return list(connection.execute(asked).scalars())


def told(connection: Connection, ids: Sequence[int], at: int) -> None:
    """Note that these groups are no news any more."""
    connection.execute(update(groups).where(groups.c.id.in_(ids), groups.c.told_at.is_(None)).values(told_at=at))


def begin_anew(connection: Connection, at: int) -> None:
    """Nobody has looked for long: all groups are known, and what stands begins now for who looks."""
    connection.execute(update(groups).where(groups.c.told_at.is_(None)).values(told_at=at))
    connection.execute(delete(alarms).where(alarms.c.key != _NUMBER))
