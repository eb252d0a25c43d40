"""Many numbers in one statement: as one value, so that the statement is the same for however many, and made once."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, ColumnElement, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


def among(column: Column[Any], numbers: Iterable[int]) -> ColumnElement[bool]:
    """Whether a column is one of these."""
    return Among(column, literal(",".join(map(str, numbers))))


class Among(FunctionElement[bool]):
    """Whether a number is one of those that a text has, with commas between them."""

    # It has no type: of a Boolean SQLAlchemy would ask SQLite whether it is 1, which no index answers.
    inherit_cache = True


@compiles(Among, "sqlite")
def _in_sqlite(element: Among, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT value FROM json_each('[' || {numbers} || ']'))"


@compiles(Among, "postgresql")
def _in_postgresql(element: Among, compiler: Any, **options: Any) -> str:
    column, numbers = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} = ANY(CAST(string_to_array({numbers}, ',') AS bigint[]))"
