"""Many rows at once, as each database is quickest: new ones, and those with one of many values.

An insert for each letter took half of the time in which a letter is recorded. COPY would be quicker still, but whoever
is frozen in the midst of it keeps its locks for ever: no timeout of PostgreSQL's ends a COPY whose rows do not come.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Integer, LargeBinary, Table, any_, bindparam
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
        lists = (f"%s::text::{_array(table.c[name])}" for name in rows[0])
        columns = zip(*(row.values() for row in rows), strict=True)
        connection.exec_driver_sql(f"{into} SELECT * FROM unnest({', '.join(lists)})", tuple(map(_literal, columns)))
    else:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"{into} VALUES ({marks})", [tuple(row.values()) for row in rows])


def among(connection: Connection, column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Whether a column has one of these values."""
    found = list(values)
    if connection.dialect.name == "postgresql":
        # One parameter, where IN has one for each.
        return column == any_(bindparam(None, found, type_=ARRAY(column.type)))
    return column.in_(found)


def _array(column: Column[Any]) -> str:
    """The widest type of its kind: what is too much for the column is refused, where a cast to it would cut it off."""
    if isinstance(column.type, LargeBinary):
        return "bytea[]"
    return "bigint[]" if isinstance(column.type, Integer) else "text[]"


def _literal(values: Sequence[Any]) -> str:
    """Numbers, bytes or texts as PostgreSQL writes an array: the driver takes four times as long for a list."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
