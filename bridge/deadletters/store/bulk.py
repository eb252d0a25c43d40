"""Many rows at once, as each database is quickest: new ones, and those with one of many values.

An insert for each letter took half of the time in which a letter is recorded. COPY would be quicker still, but whoever
is frozen in the midst of it keeps its locks for ever: no timeout of PostgreSQL's ends a COPY whose rows do not come.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY


def add(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert these, in the connection's transaction.

    Parameters:
        rows: each with the same columns, in one order.
    """
    if not rows:
        return
    quoted = connection.dialect.identifier_preparer.quote
    into = f"INSERT INTO {quoted(table.name)} ({', '.join(map(quoted, rows[0]))})"
    if connection.dialect.name == "postgresql":
        columns = [table.c[name] for name in rows[0]]
        lists = (f"%s::text::{_array(column)}" for column in columns)
        values = zip(*(row.values() for row in rows), strict=True)
        given = tuple(_literal(column, some) for column, some in zip(columns, values, strict=True))
        connection.exec_driver_sql(f"{into} SELECT * FROM unnest({', '.join(lists)})", given)
    else:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"{into} VALUES ({marks})", [tuple(row.values()) for row in rows])


def among(connection: Connection, column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Whether a column has one of these values."""
    found = list(values)
    if connection.dialect.name == "postgresql":
        # One parameter, where IN has one for each; in a SELECT of its own, or it would be taken apart for each row.
        listed = cast(bindparam(None, _literal(column, found), type_=Text()), ARRAY(column.type))
        return column == any_(func.array(select(func.unnest(listed)).scalar_subquery()))
    return column.in_(found)


def _array(column: Column[Any]) -> str:
    """The widest type of its kind: what is too much for the column is refused, where a cast to it would cut it off."""
    if isinstance(column.type, LargeBinary):
        return "bytea[]"
    return "bigint[]" if isinstance(column.type, Integer) else "text[]"


def _literal(column: Column[Any], values: Sequence[Any]) -> str:
    """Numbers, bytes or texts as PostgreSQL writes an array: the driver takes four times as long for a list."""
    if isinstance(column.type, LargeBinary):
        written = ["NULL" if each is None else f'"\\\\x{each.hex()}"' for each in values]
    elif isinstance(column.type, Integer):
        written = ["NULL" if each is None else str(each) for each in values]
    else:
        written = ["NULL" if each is None else _quoted(each) for each in values]
    return f"{{{','.join(written)}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
