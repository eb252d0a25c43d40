"""Letters newest first, read off the ends of index ranges: as many rows as are wanted, however many there are.

Of a filter by kind each kind and status that has letters is a range of `ix_letters_kind`. Each range's newest letter is
looked up first: the newest n letters of all lie in the n ranges whose own newest are newest.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Select, String, bindparam, cast, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from bridge.deadletters.letters.filters import Cursor, Filter
from bridge.deadletters.store.matching import kind_conditions, within
from bridge.deadletters.store.schema import kinds, letters, tallies

NEWEST = (letters.c.failed_at.desc(), letters.c.id.desc())


class Range(NamedTuple):
    """The letters of a kind and status.

    Attributes:
        size: how many there are, at any time.
        newest_at: when the newest of those that are asked for failed; `None`: there is none.
    """

    kind_id: int
    status: str
    size: int
    newest_at: int | None


def of_kinds(asked: Filter) -> bool:
    """Whether a filter says which kinds are meant."""
    return bool(
        asked.handlers
        or asked.topics
        or asked.exceptions
        or asked.reasons
        or asked.versions
        or asked.origins
        or asked.groups
        or asked.causes
    )


def ranges(connection: Connection, asked: Filter, before: Cursor | None) -> list[Range]:
    """The ranges in which a filter's letters lie, by kind and status, those that have none left out."""
    newest = (
        select(letters.c.failed_at)
        .where(letters.c.kind_id == tallies.c.kind_id, letters.c.status == tallies.c.status, *within(asked, before))
        .order_by(*NEWEST)
        .limit(1)
        .scalar_subquery()
    )
    statement = select(tallies, newest).join(kinds, kinds.c.id == tallies.c.kind_id)
    statement = statement.where(tallies.c.count > 0, *kind_conditions(asked))
    if asked.statuses:
        statement = statement.where(tallies.c.status.in_(asked.statuses))
    return [found for row in connection.execute(statement) if (found := Range(*row)).newest_at is not None]


def tallied(connection: Connection, asked: Filter) -> int:
    """How many letters a filter means by its kinds and statuses alone."""
    found = select(func.coalesce(func.sum(tallies.c.count), 0)).join(kinds, kinds.c.id == tallies.c.kind_id)
    if asked.statuses:
        found = found.where(tallies.c.status.in_(asked.statuses))
    return int(connection.execute(found.where(*kind_conditions(asked))).scalar_one())


def merged(
    connection: Connection, found: Sequence[Range], asked: Filter, before: Cursor | None, most: int
) -> list[Cursor]:
    """The newest letters of some ranges, newest first."""
    kept = _newest(found, most)
    if connection.dialect.name == "postgresql":
        found_in = side_by_side(kept, _plain(asked, before, most))
        newest = found_in.order_by(*(column.desc() for column in found_in.selected_columns)).limit(most)
        return [Cursor(row.failed_at, row.id) for row in connection.execute(newest)]
    return nlargest(most, _each(connection, kept, asked, before, most))


def walked(connection: Connection, asked: Filter, before: Cursor | None, most: int) -> list[Cursor]:
    """The newest letters of all kinds, of the filter's statuses and time; newest first."""
    each = by_status(asked, _plain(asked, before, most))
    rows = (row for statement in each for row in connection.execute(statement))
    return nlargest(most, (Cursor(row.failed_at, row.id) for row in rows))


def by_status(asked: Filter, plain: Select[Any]) -> list[Select[Any]]:
    """A statement on letters for each status that a filter names; or one for all."""
    return [plain.where(letters.c.status == status) for status in sorted(set(asked.statuses))] or [plain]


def _newest(found: Sequence[Range], most: int) -> list[Range]:
    if len(found) <= most:
        return list(found)
    (*_, last) = nlargest(most, (each.newest_at or 0 for each in found))
    return [each for each in found if (each.newest_at or 0) >= last]


def _plain(asked: Filter, before: Cursor | None, most: int) -> Select[tuple[int, int]]:
    found = select(letters.c.failed_at, letters.c.id).where(*within(asked, before))
    return found.order_by(*NEWEST).limit(most)


def _each(
    connection: Connection, found: Sequence[Range], asked: Filter, before: Cursor | None, most: int
) -> Iterator[Cursor]:
    statement = _plain(asked, before, most).where(
        letters.c.kind_id == bindparam("of_kind"), letters.c.status == bindparam("of_status")
    )
    for each in found:
        for row in connection.execute(statement, {"of_kind": each.kind_id, "of_status": each.status}):
            yield Cursor(row.failed_at, row.id)


def side_by_side(found: Sequence[Range], plain: Select[Any]) -> Select[Any]:
    """A bounded statement on letters, for each of some ranges, in one statement; PostgreSQL alone has such."""
    pairs = (
        func.unnest(
            cast([each.kind_id for each in found], ARRAY(BigInteger)),
            cast([each.status for each in found], ARRAY(String)),
        )
        .table_valued("kind_id", "status")
        .render_derived()
    )
    of_each = plain.where(letters.c.kind_id == pairs.c.kind_id, letters.c.status == pairs.c.status).lateral("of_each")
    return select(*of_each.c).select_from(pairs.join(of_each, true()))
