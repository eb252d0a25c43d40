"""The letters that stand in front of one in a list, nearest first: the way back from an older page."""

from sqlalchemy import Connection, select, tuple_

from bridge.deadletters.letters.filters import Cursor, Filter
from bridge.deadletters.letters.letter import key_digest
from bridge.deadletters.store import searching
from bridge.deadletters.store.matching import carried, one_of, standing, within
from bridge.deadletters.store.pages import STRIDE, Page
from bridge.deadletters.store.schema import letters


def newer(connection: Connection, asked: Filter, limit: int, after: Cursor) -> Page:
    """The letters of a filter just newer than one, nearest first; `next` is where to look on, further on.

    It looks at so many letters at most, whatever there is; so it may find fewer, or none, and yet not be at the end.
    """
    seen = _above(connection, asked, after)
    fit = {each.id for each in seen}
    if fit and asked.words:
        fit = {*connection.execute(searching.among(sorted(fit), asked.words)).scalars()}
    if fit and (rest := [*standing(asked, few=True), *carried(asked)]):
        fit = {*connection.execute(select(letters.c.id).where(one_of(letters.c.id, sorted(fit)), *rest)).scalars()}
    found = [each for each in seen if each.id in fit]
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1])
    return Page(found, seen[-1] if len(seen) == STRIDE else None)


def _above(connection: Connection, asked: Filter, after: Cursor) -> list[Cursor]:
    """The letters that it might be, by the end of an index."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *within(asked, None),
        letters.c.failed_at >= after.failed_at,
        tuple_(letters.c.failed_at, letters.c.id) > tuple_(after.failed_at, after.id),
    )
    if asked.ids:
        found = found.where(one_of(letters.c.id, asked.ids))
    if asked.key is not None:
        found = found.where(letters.c.key_digest == key_digest(asked.key))
    if len(asked.statuses) == 1:
        found = found.where(letters.c.status == asked.statuses[0])
    rows = connection.execute(found.order_by(letters.c.failed_at, letters.c.id).limit(STRIDE))
    return [Cursor(row.failed_at, row.id) for row in rows]
