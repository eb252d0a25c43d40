"""SQL that both databases share: the clock of leases, membership in a list of numbers, and bulk inserts."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

Value = TypeVar("Value")

_CLOCK_QUERY = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint)")


def read_clock(connection: Connection) -> int:
    """Return ms since the epoch, by PostgreSQL's clock, or by this host's for a SQLite file."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_CLOCK_QUERY).scalar_one())
    return int(time.time() * 1000)


def read_one(connection: Connection, asked: Select[Any], type_: Callable[..., Value]) -> Value | None:
    """Return the first row of a query as a value; `None` if there is no row."""
    row = connection.execute(asked).first()
    return None if row is None else type_(*row)


def insert_missing(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return the statement that inserts rows, but for those whose key exists."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()


def is_among(column: Column[Any], numbers: Iterable[int]) -> ColumnElement[bool]:
    """Return the condition that a column is one of these numbers."""
    return AmongNumbers(column, literal(",".join(map(str, numbers))))


class AmongNumbers(FunctionElement[bool]):
    """The SQL condition that a number is in a comma-separated text."""

    # Without a type: SQLAlchemy would compare a Boolean with 1 in SQLite, which uses no index.
    inherit_cache = True


@compiles(AmongNumbers, "sqlite")
def _among_in_sqlite(element: AmongNumbers, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT value FROM json_each('[' || {numbers} || ']'))"


@compiles(AmongNumbers, "postgresql")
def _among_in_postgresql(element: AmongNumbers, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} = ANY(CAST(string_to_array({numbers}, ',') AS bigint[]))"


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in the connection's transaction.

    Parameters:
        rows: with the same columns in the same order.
    """
    if not rows:
        return
    quoted = connection.dialect.identifier_preparer.quote
    into = f"INSERT INTO {quoted(table.name)} ({', '.join(map(quoted, rows[0]))})"
    if connection.dialect.name == "postgresql":
        columns = [table.c[name] for name in rows[0]]
        lists = (f"%s::text::{_array_type(column)}" for column in columns)
        values = zip(*(row.values() for row in rows), strict=True)
        given = tuple(_array_literal(column, some) for column, some in zip(columns, values, strict=True))
        connection.exec_driver_sql(f"{into} SELECT * FROM unnest({', '.join(lists)})", given)
    else:
        marks = ", ".join("?" * len(rows[0]))
        connection.exec_driver_sql(f"{into} VALUES ({marks})", [tuple(row.values()) for row in rows])


def has_one_of(connection: Connection, column: Column[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of these values."""
    found = list(values)
    if connection.dialect.name == "postgresql":
        # One parameter, where IN needs one for each value; in a SELECT of its own, or it would be parsed for each row.
        listed = cast(bindparam(None, _array_literal(column, found), type_=Text()), ARRAY(column.type))
        return column == any_(func.array(select(func.unnest(listed)).scalar_subquery()))
    return column.in_(found)


def _array_type(column: Column[Any]) -> str:
    """Return the widest type of the column's kind: a value out of range is refused, where a cast would truncate it."""
    if isinstance(column.type, LargeBinary):
        return "bytea[]"
    return "bigint[]" if isinstance(column.type, Integer) else "text[]"


def _array_literal(column: Column[Any], values: Sequence[Any]) -> str:
    """Return numbers, bytes or texts as an array literal of PostgreSQL: four times as fast as a list parameter."""
    if isinstance(column.type, LargeBinary):
        written = ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]
    elif isinstance(column.type, Integer):
        written = ["NULL" if value is None else str(value) for value in values]
    else:
        written = ["NULL" if value is None else _quote_text(value) for value in values]
    return f"{{{','.join(written)}}}"


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
