"""A filter of dead letters as conditions of SQL."""

import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    LargeBinary,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bridge.deadletters.db import search_index
from bridge.deadletters.db.table_definitions import failures, items, kinds, letters
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.filter_syntax import (
    CLASS_NAMES,
    HEADERS,
    KEY,
    LEAST,
    NAMES,
    NUMBERS,
    SINCE,
    STATUSES,
    UNTIL,
    ValueType,
)
from bridge.deadletters.model.letter_filter import FILTER_FIELDS, FilterField, LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import pack_headers

Condition = ColumnElement[bool]


def select_matching_letters(filter_: LetterFilter, among: Sequence[int] | None = None) -> Select[tuple[int, int]]:
    """Return the query of all letters of a filter, unordered: the id, and how often each has died.

    Parameters:
        among: as in `build_letter_conditions`.
    """
    return select(letters.c.id, letters.c.failures).where(*build_letter_conditions(filter_, among=among))


def build_letter_conditions(
    filter_: LetterFilter, *, few: bool = False, among: Sequence[int] | None = None
) -> list[Condition]:
    """Return the conditions of a filter on rows of `letters`.

    Parameters:
        few: whether ids or words leave few letters.
        among: the letters that match by fields of values (`value_search.find_among`).

    Raises:
        ValueError: the filter has fields of values, and nobody has searched these: it would match too many letters.
    """
    if filter_.values and among is None:
        raise ValueError("A filter by fields of values is no condition of SQL: search the values first.")
    few = few or among is not None
    found = [
        *([] if among is None else [is_one_of(letters.c.id, among)]),
        *build_standing_conditions(filter_, few=few),
        *build_time_conditions(filter_, None, few=few),
        *build_content_conditions(filter_),
    ]
    if filter_.key is not None:
        found.append(letters.c.key_digest == key_digest(filter_.key))
    if filter_.words:
        found.append(letters.c.id.in_(search_index.select_letters_with_words(filter_.words)))
    # With few letters, `build_standing_conditions` checks the kind of each one.
    if filter_.plans:
        found.append(letters.c.id.in_(select(items.c.letter_id).where(items.c.plan_id.in_(filter_.plans))))
    if filter_.died_again:
        found.append(letters.c.id.in_(select(failures.c.letter_id)))
    return found


def build_standing_conditions(filter_: LetterFilter, *, few: bool = False) -> Iterator[Condition]:
    """Yield the conditions on a letter's kind and status, and those without an index.

    Parameters:
        few: whether few letters are found otherwise, so that no index of kind or status is needed.
    """
    if of_kinds := [*build_kind_conditions(filter_)]:
        kind_id = UnindexedColumn(letters.c.kind_id) if few else letters.c.kind_id
        yield kind_id.in_(select(kinds.c.id).where(*of_kinds))
    yield from _compare_fields(filter_, _OF_STANDING, few=few)
    if filter_.plans:
        yield exists().where(items.c.letter_id == letters.c.id, items.c.plan_id.in_(filter_.plans))
    if filter_.died_again:
        yield exists().where(failures.c.letter_id == letters.c.id)


def build_content_conditions(filter_: LetterFilter) -> Iterator[Condition]:
    """Yield the conditions on key and headers, byte for byte: a word of the index may stand for another header."""
    yield from _compare_fields(filter_, _OF_CONTENT)


def build_kind_conditions(filter_: LetterFilter) -> Iterator[Condition]:
    """Yield the conditions of a filter on rows of `kinds`."""
    yield from _compare_fields(filter_, _OF_KIND)


def build_time_conditions(
    filter_: LetterFilter, before: LetterCursor | None, *, few: bool = False
) -> Iterator[Condition]:
    """Yield the conditions on the time of the last failure, and on the position after a cursor.

    Parameters:
        few: whether few letters are found otherwise.
    """
    yield from _compare_fields(filter_, _OF_TIME, few=few)
    if before is not None:
        failed_at = UnindexedColumn(letters.c.failed_at) if few else letters.c.failed_at
        # SQLite uses an index for the first condition.
        yield failed_at <= before.failed_at
        yield tuple_(failed_at, letters.c.id) < tuple_(before.failed_at, before.id)


def _compare_fields(filter_: LetterFilter, chosen: Container[FilterField], *, few: bool = False) -> Iterator[Condition]:
    for field, wanted in filter_.given():
        if field in chosen:
            column = (kinds if field.is_of_kind else letters).c[field.column]
            used = column if field.name == "ids" or not few else UnindexedColumn(column)
            yield _COMPARISONS[field.type](used, wanted)


def is_one_of(column: Column[Any], ids: Sequence[int]) -> Condition:
    """Return the condition that a column is one of these ids, as literals: parameters are limited."""
    return column.in_(bindparam(None, list(ids), expanding=True, literal_execute=True))


def _has_class_name(column: Column[Any], names: Sequence[str]) -> Condition:
    """Return the condition on a class by its full name or its last part; LIKE ignores case in SQLite."""
    ends = ((name, func.substr(column, func.length(column) - len(name))) for name in names)
    return or_(*(or_(column == name, and_(func.length(column) > len(name), end == f".{name}")) for name, end in ends))


def _has_headers(column: Column[Any], wanted: Sequence[tuple[str, str]]) -> Condition:
    pairs = (pack_headers([(name, value.encode("utf-8", "surrogateescape"))]) for name, value in wanted)
    return and_(*(BytesContain(column, literal(pair, LargeBinary)) for pair in pairs))


_COMPARISONS: Final[Mapping[ValueType, Callable[[Any, Any], Condition]]] = {
    NAMES: lambda column, wanted: column.in_(wanted),
    STATUSES: lambda column, wanted: column.in_(wanted),
    CLASS_NAMES: _has_class_name,
    NUMBERS: is_one_of,
    LEAST: operator.ge,
    SINCE: operator.ge,
    UNTIL: operator.lt,
    KEY: operator.eq,
    HEADERS: _has_headers,
}
_OF_KIND: Final = frozenset(field for field in FILTER_FIELDS if field.is_of_kind)
_OF_TIME: Final = frozenset(field for field in FILTER_FIELDS if field.type in (SINCE, UNTIL))
_OF_CONTENT: Final = frozenset(field for field in FILTER_FIELDS if field.type in (KEY, HEADERS))
_OF_STANDING: Final = (
    frozenset(field for field in FILTER_FIELDS if field.type in _COMPARISONS and field.value)
    - _OF_KIND
    - _OF_TIME
    - _OF_CONTENT
)


class UnindexedColumn(FunctionElement[Any]):
    """A column that no index may be used for, because few rows are found otherwise.

    SQLite does not know how many letters have a value. It would read half a million open letters of a million by the
    index of statuses.
    """

    inherit_cache = True

    def __init__(self, column: Column[Any]) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(UnindexedColumn)
def _render_unindexed(element: UnindexedColumn, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(UnindexedColumn, "sqlite")
def _render_unindexed_in_sqlite(element: UnindexedColumn, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


class BytesContain(FunctionElement[bool]):
    """The SQL condition that bytes contain other bytes."""

    inherit_cache = True


@compiles(BytesContain, "sqlite")
def _contain_in_sqlite(element: BytesContain, compiler: Any, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)}) > 0"


@compiles(BytesContain, "postgresql")
def _contain_in_postgresql(element: BytesContain, compiler: Any, **options: Any) -> str:
    whole, part = (compiler.process(each, **options) for each in element.clauses)
    return f"position(CAST({part} AS bytea) IN {whole}) > 0"
