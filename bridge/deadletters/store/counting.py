"""How many letters a filter means, without counting more rows than a person can want to know of."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, case, func, literal, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import key_digest
from bridge.deadletters.store import searching
from bridge.deadletters.store.matching import conditions, within
from bridge.deadletters.store.newest import Range, by_status, of_kinds, ranges, side_by_side, tallied
from bridge.deadletters.store.pages import looked_through, rare
from bridge.deadletters.store.schema import letters

#: Rows that are counted one by one, where no tally has them.
MOST: Final = 10_000
#: Letters that are looked at for what no index has.
AMONG: Final = 1_500


class Weight(NamedTuple):
    """How much there is to do with letters.

    Attributes:
        octets: of their values, as far as the database has them.
    """

    letters: int
    octets: int


def count(connection: Connection, asked: Filter) -> tuple[int, bool, int | None]:
    """How many letters a filter means, whether that is exact, and among how many of the newest it was counted.

    What is not exact is a lower bound; the last is `None` where the count ended only because it had enough.
    """
    if (found := _by_index(connection, asked)) is not None:
        return (*found, None)
    newest = looked_through(connection, asked, AMONG, most=AMONG)
    return len(newest.letters), newest.next is None, None if newest.next is None else AMONG


def _by_index(connection: Connection, asked: Filter) -> tuple[int, bool] | None:
    """As `count`; `None` where no index or tally has all that is asked for."""
    if asked.words and asked == Filter(text=asked.text):
        return _rows(connection, [searching.having(asked.words)])
    if asked.ids or (asked.words and rare(connection, asked, MOST)):
        return _rows(connection, [select(literal(1)).where(*conditions(asked, few=True)).select_from(letters)])
    if asked.key is not None and asked == Filter(key=asked.key, since=asked.since, until=asked.until):
        # By the digest alone: what stands for two keys would have to be looked for on purpose.
        plain = select(literal(1)).select_from(letters).where(letters.c.key_digest == key_digest(asked.key))
        return _rows(connection, [plain.where(*within(asked, None))])
    if asked.words or asked.key is not None or asked.of_history:
        return None
    if asked.since is None and asked.until is None:
        return tallied(connection, asked), True
    if of_kinds(asked):
        return _of_ranges(connection, ranges(connection, asked, None), asked)
    plain = select(literal(1)).select_from(letters).where(*within(asked, None))
    return _rows(connection, by_status(asked, plain))


def weight(connection: Connection, asked: Filter, most: int) -> Weight:
    """What a filter means, exactly; of one letter more than `most` at the most."""
    size = case((letters.c.value.is_(None), 0), else_=letters.c.value_size).label("size")
    some = select(size).where(*conditions(asked)).limit(most + 1).subquery()
    counted = select(func.count(), func.coalesce(func.sum(some.c.size), 0))
    return Weight(*map(int, connection.execute(counted).one()))


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
