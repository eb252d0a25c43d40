"""How many letters a filter means, without counting more rows than a person can want to know of."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, func, literal, select

from bridge.deadletters.filters import Filter
from bridge.deadletters.store.matching import conditions, kind_conditions, within
from bridge.deadletters.store.newest import Range, by_status, of_kinds, ranges, side_by_side
from bridge.deadletters.store.pages import STRIDE, looked_through, rare
from bridge.deadletters.store.schema import kinds, letters, tallies

#: Rows that are counted one by one, where no tally has them.
MOST: Final = 10_000


def count(connection: Connection, asked: Filter) -> tuple[int, bool]:
    """How many letters a filter means, and whether that is exact; otherwise there are at least so many."""
    if asked.ids or (asked.words and rare(connection, asked)):
        return _rows(connection, [select(literal(1)).where(*conditions(asked)).select_from(letters)])
    if asked.words or asked.key is not None:
        found = looked_through(connection, asked, STRIDE)
        return len(found.letters), found.next is None
    if asked.since is None and asked.until is None:
        return _tallied(connection, asked), True
    if of_kinds(asked):
        return _of_ranges(connection, ranges(connection, asked, None), asked)
    plain = select(literal(1)).select_from(letters).where(*within(asked, None))
    return _rows(connection, by_status(asked, plain))


def _tallied(connection: Connection, asked: Filter) -> int:
    found = select(func.coalesce(func.sum(tallies.c.count), 0)).join(kinds, kinds.c.id == tallies.c.kind_id)
    if asked.statuses:
        found = found.where(tallies.c.status.in_(asked.statuses))
    return int(connection.execute(found.where(*kind_conditions(asked))).scalar_one())


def _of_ranges(connection: Connection, found: Sequence[Range], asked: Filter) -> tuple[int, bool]:
    """The largest first: they may be enough."""
    largest = sorted(found, key=lambda each: -each.size)
    plain = select(literal(1).label("one")).select_from(letters).where(*within(asked, None))
    if connection.dialect.name == "postgresql":
        return _rows(connection, [side_by_side(largest, plain.limit(MOST + 1))])
    of_each = (plain.where(letters.c.kind_id == each.kind_id, letters.c.status == each.status) for each in largest)
    return _rows(connection, of_each)


def _rows(connection: Connection, statements: Any) -> tuple[int, bool]:
    number = 0
    for statement in statements:
        some = statement.limit(MOST + 1 - number).subquery()
        number += connection.execute(select(func.count()).select_from(some)).scalar_one()
        if number > MOST:
            return MOST, False
    return number, True
