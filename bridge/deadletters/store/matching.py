"""A filter as conditions of SQL."""

from collections.abc import Iterator, Sequence
from typing import Any

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

from bridge.deadletters.letters.filters import Cursor, Filter
from bridge.deadletters.letters.letter import key_digest, packed
from bridge.deadletters.store import searching
from bridge.deadletters.store.schema import failures, items, kinds, letters

Condition = ColumnElement[bool]


def matching(asked: Filter) -> Select[tuple[int, int]]:
    """Every letter that is meant: its id, and how often it has died; in no order, and however many they are."""
    return select(letters.c.id, letters.c.failures).where(*conditions(asked))


def conditions(asked: Filter, *, few: bool = False) -> list[Condition]:
    """What a row of `letters` must fulfil.

    Parameters:
        few: by its ids or words few letters are left.
    """
    found = [*standing(asked, few=few), *within(asked, None, few=few), *carried(asked)]
    if asked.key is not None:
        found.append(letters.c.key_digest == key_digest(asked.key))
    if asked.words:
        found.append(letters.c.id.in_(searching.having(asked.words)))
    # Of few; `standing` asks the same of each letter.
    if asked.plans:
        found.append(letters.c.id.in_(select(items.c.letter_id).where(items.c.plan_id.in_(asked.plans))))
    if asked.died_again:
        found.append(letters.c.id.in_(select(failures.c.letter_id)))
    return found


def standing(asked: Filter, *, few: bool = False) -> Iterator[Condition]:
    """Of what it is, and where it stands.

    Parameters:
        few: of letters that are found otherwise: no index has to say which ones stand alike.
    """
    kind_id, status = (Seen(each) if few else each for each in (letters.c.kind_id, letters.c.status))
    if asked.ids:
        yield one_of(letters.c.id, asked.ids)
    if of_kinds := [*kind_conditions(asked)]:
        yield kind_id.in_(select(kinds.c.id).where(*of_kinds))
    if asked.statuses:
        yield status.in_(asked.statuses)
    if asked.attempts:
        yield letters.c.runs >= asked.attempts
    if asked.plans:
        yield exists().where(items.c.letter_id == letters.c.id, items.c.plan_id.in_(asked.plans))
    if asked.died_again:
        yield exists().where(failures.c.letter_id == letters.c.id)


def carried(asked: Filter) -> Iterator[Condition]:
    """Of its key and its headers, byte for byte; a word of the index stands for a header and might for another."""
    if asked.key is not None:
        yield letters.c.key == asked.key
    for name, value in asked.headers:
        pair = packed([(name, value.encode("utf-8", "surrogateescape"))])
        yield Contains(letters.c.headers, literal(pair, LargeBinary))


def kind_conditions(asked: Filter) -> Iterator[Condition]:
    """What a row of `kinds` must fulfil."""
    texts: tuple[tuple[Column[Any], Sequence[str]], ...] = (
        (kinds.c.handler, asked.handlers),
        (kinds.c.topic, asked.topics),
        (kinds.c.reason, asked.reasons),
        (kinds.c.version, asked.versions),
        (kinds.c.origin, asked.origins),
        (kinds.c.cause, asked.causes),
    )
    yield from (column.in_(values) for column, values in texts if values)
    if asked.groups:
        yield one_of(kinds.c.group_id, asked.groups)
    if asked.exceptions:
        yield or_(*map(_named, asked.exceptions))


def within(asked: Filter, before: Cursor | None, *, few: bool = False) -> Iterator[Condition]:
    """Of the time at which it failed last, and of what comes behind a letter in the list.

    Parameters:
        few: of letters that are found otherwise.
    """
    failed_at = Seen(letters.c.failed_at) if few else letters.c.failed_at
    if asked.since is not None:
        yield failed_at >= asked.since
    if asked.until is not None:
        yield failed_at < asked.until
    if before is not None:
        # The first is what SQLite looks up in an index.
        yield failed_at <= before.failed_at
        yield tuple_(failed_at, letters.c.id) < tuple_(before.failed_at, before.id)


def one_of(column: Column[Any], ids: Sequence[int]) -> Condition:
    """Written into the statement: there may be more than a database takes as parameters."""
    return column.in_(bindparam(None, list(ids), expanding=True, literal_execute=True))


def _named(exception: str) -> Condition:
    """A class by its full name, or its last part; LIKE would not tell a from A in SQLite."""
    name = kinds.c.error_class
    end = func.substr(name, func.length(name) - len(exception))
    return or_(name == exception, and_(func.length(name) > len(exception), end == f".{exception}"))


class Seen(FunctionElement[Any]):
    """A column as it stands in a row that is found otherwise.

    SQLite, which does not know how many letters stand alike, would rather ask an index for all of these: of a million
    letters, for half a million that are open.
    """

    inherit_cache = True

    def __init__(self, column: Column[Any]) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(Seen)
def _seen(element: Seen, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(Seen, "sqlite")
def _seen_in_sqlite(element: Seen, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


class Contains(FunctionElement[bool]):
    """Whether some bytes have others in them."""

    inherit_cache = True


@compiles(Contains, "sqlite")
def _in_sqlite(element: Contains, compiler: Any, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)}) > 0"


@compiles(Contains, "postgresql")
def _in_postgresql(element: Contains, compiler: Any, **options: Any) -> str:
    whole, part = (compiler.process(each, **options) for each in element.clauses)
    return f"position(CAST({part} AS bytea) IN {whole}) > 0"
