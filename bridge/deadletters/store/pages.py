"""One page of the letters that a filter means, newest first.

Every way below reads a bounded number of rows, so a page may be shorter than was asked for and yet not be the last: it
says where to go on. What is on it is exact: no letter before its end is left out.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, select

from bridge.deadletters.letters.filters import Cursor, Filter
from bridge.deadletters.letters.letter import key_digest
from bridge.deadletters.store import searching
from bridge.deadletters.store.matching import carried, conditions, one_of, standing, within
from bridge.deadletters.store.newest import NEWEST, merged, of_kinds, ranges, tallied, walked
from bridge.deadletters.store.schema import letters

#: How many of the newest letters are looked through first: what is common is found there.
FIRST: Final = 400
#: How many letters of the index are sorted. A word that more have is common, and is looked for among the newest again.
RARE: Final = 4_000
#: How many are looked through for one page.
STRIDE: Final = 2_500
#: How many times more are looked through each time that it was not enough.
FURTHER: Final = 8
#: Of kinds that have no more letters, those are looked through; of others, all letters.
FEW: Final = 20_000


class Page(NamedTuple):
    """A part of a list.

    Attributes:
        letters: newest first.
        next: where the next one begins; `None`: there is none.
    """

    letters: list[Cursor]
    next: Cursor | None


def page(connection: Connection, asked: Filter, limit: int, before: Cursor | None = None) -> Page:
    """The newest letters of a filter, behind a letter where one is given.

    Parameters:
        limit: most letters; fewer do not mean that there are no more.
    """
    if asked.ids:
        return _sorted(connection, asked, limit, before)
    if asked.words:
        return _by_words(connection, asked, limit, before)
    if asked.key is not None or asked.of_history:
        return looked_through(connection, asked, limit, before)
    if of_kinds(asked):
        return _by_kinds(connection, asked, limit, before)
    return _cut(walked(connection, asked, before, limit + 1), limit)


def looked_through(
    connection: Connection, asked: Filter, limit: int, before: Cursor | None = None, most: int = STRIDE
) -> Page:
    """The newest letters of a filter among the newest that it might mean.

    Parameters:
        most: how many of those are looked at; the first few first, which may be enough.
    """
    found: list[Cursor] = []
    stride = limit + 1
    while True:
        stride = min(stride, most)
        part = _fitting(connection, asked, _candidates(connection, asked, before, stride), limit - len(found), stride)
        found += part.letters
        most -= stride
        if part.next is None or not most or len(found) == limit:
            return Page(found, part.next)
        before, stride = part.next, stride * FURTHER


def rare(connection: Connection, asked: Filter, most: int | None = None) -> bool:
    """Whether few letters have a filter's words, of whatever else it says: at most `RARE`, or so many."""
    few = RARE if most is None else most
    some = searching.having(asked.words).limit(few + 1).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() <= few


def _by_words(connection: Connection, asked: Filter, limit: int, before: Cursor | None) -> Page:
    near = looked_through(connection, asked, limit, before, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    if rare(connection, asked):
        return _sorted(connection, asked, limit, before)
    far = looked_through(connection, asked, limit - len(near.letters), near.next)
    return Page([*near.letters, *far.letters], far.next)


def _by_kinds(connection: Connection, asked: Filter, limit: int, before: Cursor | None) -> Page:
    """Of kinds that are common the newest letters of all have enough; of others each has its range."""
    near = _fitting(connection, asked, walked(connection, asked, before, FIRST), limit, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    return _cut(merged(connection, ranges(connection, asked, before), asked, before, limit + 1), limit)


def _sorted(connection: Connection, asked: Filter, limit: int, before: Cursor | None) -> Page:
    """Of a filter that few letters can fulfil: all that do are sorted."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *conditions(asked, few=True), *within(asked, before, few=True)
    )
    rows = connection.execute(found.order_by(*NEWEST).limit(limit + 1))
    return _cut([Cursor(row.failed_at, row.id) for row in rows], limit)


def _candidates(connection: Connection, asked: Filter, before: Cursor | None, most: int) -> list[Cursor]:
    """The newest of those that a filter might mean."""
    if asked.key is not None:
        of_key = select(letters.c.failed_at, letters.c.id).where(letters.c.key_digest == key_digest(asked.key))
        rows = connection.execute(of_key.where(*within(asked, before)).order_by(*NEWEST).limit(most))
        return [Cursor(row.failed_at, row.id) for row in rows]
    if of_kinds(asked) and tallied(connection, asked) <= FEW:
        return merged(connection, ranges(connection, asked, before), asked, before, most)
    return walked(connection, asked, before, most)


def _fitting(connection: Connection, asked: Filter, seen: Sequence[Cursor], limit: int, most: int) -> Page:
    """Those of some letters that a filter means; fewer letters than `most` were all that there are."""
    fit = {each.id for each in seen}
    # In two statements, each by ids: of one PostgreSQL would rather read all letters of the kinds.
    if fit and asked.words:
        fit = {*connection.execute(searching.among(sorted(fit), asked.words)).scalars()}
    if fit and (rest := [*standing(asked, few=True), *carried(asked)]):
        some = select(letters.c.id).where(one_of(letters.c.id, sorted(fit)), *rest)
        fit = {*connection.execute(some).scalars()}
    found = [each for each in seen if each.id in fit]
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1])
    return Page(found, seen[-1] if len(seen) == most else None)


def _cut(found: list[Cursor], limit: int) -> Page:
    return Page(found[:limit], found[limit - 1] if len(found) > limit else None)
