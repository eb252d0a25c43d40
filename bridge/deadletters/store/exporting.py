"""What of a database goes into an export beside its letters, and is taken over by another."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.store.database import holds
from bridge.deadletters.store.matching import matching
from bridge.deadletters.store.schema import facts, letters, positions
from bridge.errors import NoExport


def ids_of(connection: Connection, asked: Filter) -> Iterable[int]:
    """The ids of a filter's letters, ascending."""
    found = matching(asked).order_by(letters.c.id).execution_options(yield_per=10_000)
    return (row.id for row in connection.execute(found))


def facts_and_positions(connection: Connection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Which Kafka the letters are of, and how far its topics are recorded."""
    known = {row.name: row.value for row in connection.execute(select(facts))}
    return {"facts": known}, [dict(row) for row in connection.execute(select(positions)).mappings()]


def take_over(connection: Connection, said: Mapping[str, Any]) -> None:
    """Note which Kafka the letters are of, and how far its topics are recorded, where nothing is noted yet.

    Raises:
        NoExport: this database has another Kafka's letters; or what is said is not what an export says.
    """
    try:
        for name, value in dict(said["facts"]).items():
            if (here := holds(connection, str(name), str(value))) != str(value):
                raise NoExport(
                    f"its letters are of another Kafka ({name} {value}) than those of this database ({here})."
                )
        there = {_place(row) for row in connection.execute(select(positions)).mappings()}
        if new := [_position(row) for row in said["positions"] if _place(row) not in there]:
            connection.execute(insert(positions), new)
    except (KeyError, TypeError, ValueError) as error:
        raise NoExport(f"a line on all its letters is not what an export says ({type(error).__name__}).") from None


def _place(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in positions.primary_key)


def _position(row: Mapping[str, Any]) -> dict[str, Any]:
    return {column.name: row[column.name] for column in positions.c}
