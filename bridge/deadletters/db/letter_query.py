"""The letters that a filter selects, newest first by pages, and how many there are.

Each query reads a bounded number of rows, so a page may be short and not the last. A page is exact: it
leaves out no letter before its end.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    String,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from bridge.deadletters.db import search_index, value_search
from bridge.deadletters.db.filter_sql import (
    build_content_conditions,
    build_kind_conditions,
    build_letter_conditions,
    build_standing_conditions,
    build_time_conditions,
    is_one_of,
)
from bridge.deadletters.db.table_definitions import kinds, letters, tallies
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.letter_filter import LetterCursor, LetterFilter

NEWEST_FIRST = (letters.c.failed_at.desc(), letters.c.id.desc())


class KindRange(NamedTuple):
    """The letters of a kind and status.

    Attributes:
        size: how many there are, of any time.
        newest_at: the failure time of the newest matching letter; `None`: there is none.
    """

    kind_id: int
    status: str
    size: int
    newest_at: int | None


def selects_kinds(filter_: LetterFilter) -> bool:
    """Return whether a filter selects kinds."""
    return any(field.is_of_kind for field, _ in filter_.given())


def find_kind_ranges(connection: Connection, filter_: LetterFilter, before: LetterCursor | None) -> list[KindRange]:
    """Return the non-empty ranges of kind and status that may have letters of a filter."""
    newest = (
        select(letters.c.failed_at)
        .where(
            letters.c.kind_id == tallies.c.kind_id,
            letters.c.status == tallies.c.status,
            *build_time_conditions(filter_, before),
        )
        .order_by(*NEWEST_FIRST)
        .limit(1)
        .scalar_subquery()
    )
    statement = select(tallies, newest).join(kinds, kinds.c.id == tallies.c.kind_id)
    statement = statement.where(tallies.c.count > 0, *build_kind_conditions(filter_))
    if filter_.statuses:
        statement = statement.where(tallies.c.status.in_(filter_.statuses))
    return [found for row in connection.execute(statement) if (found := KindRange(*row)).newest_at is not None]


def count_by_tallies(connection: Connection, filter_: LetterFilter) -> int:
    """Return how many letters a filter matches by kinds and statuses alone."""
    found = select(func.coalesce(func.sum(tallies.c.count), 0)).join(kinds, kinds.c.id == tallies.c.kind_id)
    if filter_.statuses:
        found = found.where(tallies.c.status.in_(filter_.statuses))
    return int(connection.execute(found.where(*build_kind_conditions(filter_))).scalar_one())


def merge_newest_letters(
    connection: Connection, found: Sequence[KindRange], filter_: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """Return the newest letters of some ranges, newest first."""
    kept = _keep_newest_ranges(found, most)
    if connection.dialect.name == "postgresql":
        found_in = select_side_by_side(kept, _select_newest(filter_, before, most))
        newest = found_in.order_by(*(column.desc() for column in found_in.selected_columns)).limit(most)
        return _read_cursors(connection, newest)
    return nlargest(most, _walk_ranges(connection, kept, filter_, before, most))


def walk_newest_letters(
    connection: Connection, filter_: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """Return the newest letters of all kinds with the filter's statuses and time, newest first."""
    each = select_by_status(filter_, _select_newest(filter_, before, most))
    return nlargest(most, (cursor for statement in each for cursor in _read_cursors(connection, statement)))


def select_by_status(filter_: LetterFilter, plain: Select[Any]) -> list[Select[Any]]:
    """Return a query for each status of a filter, or one query for all statuses."""
    return [plain.where(letters.c.status == status) for status in sorted(set(filter_.statuses))] or [plain]


def _keep_newest_ranges(found: Sequence[KindRange], most: int) -> list[KindRange]:
    if len(found) <= most:
        return list(found)
    (*_, last) = nlargest(most, (kind_range.newest_at or 0 for kind_range in found))
    return [kind_range for kind_range in found if (kind_range.newest_at or 0) >= last]


def _select_newest(filter_: LetterFilter, before: LetterCursor | None, most: int) -> Select[tuple[int, int]]:
    found = select(letters.c.failed_at, letters.c.id).where(*build_time_conditions(filter_, before))
    return found.order_by(*NEWEST_FIRST).limit(most)


def _read_cursors(connection: Connection, statement: Select[Any]) -> list[LetterCursor]:
    return [LetterCursor(row.failed_at, row.id) for row in connection.execute(statement)]


def _walk_ranges(
    connection: Connection, found: Sequence[KindRange], filter_: LetterFilter, before: LetterCursor | None, most: int
) -> Iterator[LetterCursor]:
    statement = _select_newest(filter_, before, most).where(
        letters.c.kind_id == bindparam("of_kind"), letters.c.status == bindparam("of_status")
    )
    for kind_range in found:
        for row in connection.execute(statement, {"of_kind": kind_range.kind_id, "of_status": kind_range.status}):
            yield LetterCursor(row.failed_at, row.id)


def select_side_by_side(found: Sequence[KindRange], plain: Select[Any]) -> Select[Any]:
    """Return one query with a bounded subquery for each range; for PostgreSQL alone."""
    pairs = (
        func.unnest(
            cast([kind_range.kind_id for kind_range in found], ARRAY(BigInteger)),
            cast([kind_range.status for kind_range in found], ARRAY(String)),
        )
        .table_valued("kind_id", "status")
        .render_derived()
    )
    of_each = plain.where(letters.c.kind_id == pairs.c.kind_id, letters.c.status == pairs.c.status).lateral("of_each")
    return select(*of_each.c).select_from(pairs.join(of_each, true()))


#: Number of the newest letters that are read first: common matches are among them.
FIRST: Final = 400
#: Most letters of the word index that are sorted. A word of more letters is common, and is found among the newest.
RARE: Final = 4_000
#: Most letters that are read for one page.
STRIDE: Final = 2_500
#: The factor by which the number grows if it was not enough.
FURTHER: Final = 8
#: Up to so many letters, the ranges of the kinds are read; beyond that, the newest letters of all kinds.
FEW: Final = 20_000


class CursorPage(NamedTuple):
    """A page of a list of letters.

    Attributes:
        letters: newest first.
        next: the cursor of the next page; `None`: this is the last.
        unread: how many candidates could not be searched by their values.
    """

    letters: list[LetterCursor]
    next: LetterCursor | None
    unread: int = 0


def find_letter_page(
    connection: Connection, filter_: LetterFilter, limit: int, before: LetterCursor | None = None
) -> CursorPage:
    """Return the newest letters of a filter, after a cursor if one is given.

    Parameters:
        limit: most letters; a short page need not be the last.
    """
    if filter_.values:
        return look_through_newest(connection, filter_, limit, before)
    if filter_.ids:
        return _page_by_sorting(connection, filter_, limit, before)
    if filter_.words:
        return _page_by_words(connection, filter_, limit, before)
    if filter_.key is not None or filter_.of_history:
        return look_through_newest(connection, filter_, limit, before)
    if selects_kinds(filter_):
        return _page_by_kinds(connection, filter_, limit, before)
    return _cut_page(walk_newest_letters(connection, filter_, before, limit + 1), limit)


def look_through_newest(
    connection: Connection, filter_: LetterFilter, limit: int, before: LetterCursor | None = None, most: int = STRIDE
) -> CursorPage:
    """Return the newest letters of a filter among the newest candidates.

    Parameters:
        most: how many candidates are read; the first few first, which may be enough.
    """
    found: list[LetterCursor] = []
    stride, unread = limit + 1, 0
    while True:
        stride = min(stride, most)
        part = _keep_matching(
            connection, filter_, _find_candidates(connection, filter_, before, stride), limit - len(found), stride
        )
        found += part.letters
        unread += part.unread
        most -= stride
        if part.next is None or not most or len(found) == limit:
            return CursorPage(found, part.next, unread)
        before, stride = part.next, stride * FURTHER


def has_rare_words(connection: Connection, filter_: LetterFilter, most: int | None = None) -> bool:
    """Return whether few letters have a filter's words: at most `RARE`, or `most`."""
    few = RARE if most is None else most
    some = search_index.select_letters_with_words(filter_.words).limit(few + 1).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() <= few


def _page_by_words(
    connection: Connection, filter_: LetterFilter, limit: int, before: LetterCursor | None
) -> CursorPage:
    near = look_through_newest(connection, filter_, limit, before, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    if has_rare_words(connection, filter_):
        return _page_by_sorting(connection, filter_, limit, before)
    far = look_through_newest(connection, filter_, limit - len(near.letters), near.next)
    return CursorPage([*near.letters, *far.letters], far.next)


def _page_by_kinds(
    connection: Connection, filter_: LetterFilter, limit: int, before: LetterCursor | None
) -> CursorPage:
    """Return a page; common kinds are found among the newest letters, others by their ranges."""
    near = _keep_matching(connection, filter_, walk_newest_letters(connection, filter_, before, FIRST), limit, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    return _cut_page(
        merge_newest_letters(connection, find_kind_ranges(connection, filter_, before), filter_, before, limit + 1),
        limit,
    )


def _page_by_sorting(
    connection: Connection, filter_: LetterFilter, limit: int, before: LetterCursor | None
) -> CursorPage:
    """Return a page of a filter that few letters match: all matches are sorted."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *build_letter_conditions(filter_, few=True), *build_time_conditions(filter_, before, few=True)
    )
    return _cut_page(_read_cursors(connection, found.order_by(*NEWEST_FIRST).limit(limit + 1)), limit)


def _find_candidates(
    connection: Connection, filter_: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """Return the newest letters that a filter may match."""
    if filter_.key is not None:
        of_key = letters.c.key_digest == key_digest(filter_.key)
        return _read_cursors(connection, _select_newest(filter_, before, most).where(of_key))
    if selects_kinds(filter_) and count_by_tallies(connection, filter_) <= FEW:
        return merge_newest_letters(connection, find_kind_ranges(connection, filter_, before), filter_, before, most)
    return walk_newest_letters(connection, filter_, before, most)


def _keep_matching(
    connection: Connection, filter_: LetterFilter, seen: Sequence[LetterCursor], limit: int, most: int
) -> CursorPage:
    """Return the letters among candidates that match; fewer than `most` candidates are all that there are."""
    fit = {each.id for each in seen}
    # Two statements, each by ids: with one, PostgreSQL would read all letters of the kinds.
    if fit and filter_.words:
        fit = {*connection.execute(search_index.select_among_with_words(sorted(fit), filter_.words)).scalars()}
    if fit and (rest := [*build_standing_conditions(filter_, few=True), *build_content_conditions(filter_)]):
        some = select(letters.c.id).where(is_one_of(letters.c.id, sorted(fit)), *rest)
        fit = {*connection.execute(some).scalars()}
    found, unread, following = [each for each in seen if each.id in fit], 0, seen[-1] if len(seen) == most else None
    if filter_.values:
        ids = [each.id for each in found]
        matches = value_search.compare_values(connection, ids, filter_.values, value_search.PAGE_BYTES)
        if matches.seen < len(found):
            # The values are large: the next page begins behind the last that was compared.
            following = found[matches.seen - 1]
        found, unread = [each for each in found if each.id in matches.ids], matches.unread
    if len(found) > limit:
        return CursorPage(found[:limit], found[limit - 1], unread)
    return CursorPage(found, following, unread)


def _cut_page(found: list[LetterCursor], limit: int) -> CursorPage:
    return CursorPage(found[:limit], found[limit - 1] if len(found) > limit else None)


def find_newer_letters(connection: Connection, filter_: LetterFilter, limit: int, after: LetterCursor) -> CursorPage:
    """Return the letters of a filter just newer than a cursor, nearest first; `next` is the cursor to continue from.

    It reads a bounded number of letters, so it may find few or none before the end.
    """
    return _keep_matching(connection, filter_, _find_newer_candidates(connection, filter_, after), limit, STRIDE)


def _find_newer_candidates(connection: Connection, filter_: LetterFilter, after: LetterCursor) -> list[LetterCursor]:
    """Return the candidates, from the end of an index."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *build_time_conditions(filter_, None),
        letters.c.failed_at >= after.failed_at,
        tuple_(letters.c.failed_at, letters.c.id) > tuple_(after.failed_at, after.id),
    )
    if filter_.ids:
        found = found.where(is_one_of(letters.c.id, filter_.ids))
    if filter_.key is not None:
        found = found.where(letters.c.key_digest == key_digest(filter_.key))
    if len(filter_.statuses) == 1:
        found = found.where(letters.c.status == filter_.statuses[0])
    return _read_cursors(connection, found.order_by(letters.c.failed_at, letters.c.id).limit(STRIDE))


#: Most rows that are counted one by one if no tally has them.
MOST_COUNTED: Final = 10_000
#: Most letters that are read for conditions without an index.
MOST_LOOKED_THROUGH: Final = 1_500


class LetterWeight(NamedTuple):
    """The number of letters, and the bytes of their values.

    Attributes:
        octets: bytes of the values in the database.
    """

    letters: int
    octets: int


def count_letters(connection: Connection, filter_: LetterFilter) -> tuple[int, bool, int | None]:
    """Return the number of a filter's letters, whether it is exact, and among how many of the newest letters it was
    counted.

    An inexact number is a lower bound. The last is `None` if counting stopped because the number was large enough.
    """
    if not filter_.values and (found := _count_by_index(connection, filter_)) is not None:
        return (*found, None)
    newest = look_through_newest(connection, filter_, MOST_LOOKED_THROUGH, most=MOST_LOOKED_THROUGH)
    is_exact = newest.next is None and not newest.unread
    return len(newest.letters), is_exact, None if is_exact else MOST_LOOKED_THROUGH


def _count_by_index(connection: Connection, filter_: LetterFilter) -> tuple[int, bool] | None:
    """Return the count from indexes and tallies; `None` if they do not have all fields of the filter."""
    if filter_.words and filter_ == LetterFilter(text=filter_.text):
        return _count_rows(connection, [search_index.select_letters_with_words(filter_.words)])
    if filter_.ids or (filter_.words and has_rare_words(connection, filter_, MOST_COUNTED)):
        return _count_rows(
            connection, [select(literal(1)).where(*build_letter_conditions(filter_, few=True)).select_from(letters)]
        )
    if filter_.key is not None and filter_ == LetterFilter(key=filter_.key, since=filter_.since, until=filter_.until):
        # By the digest alone: only an attack produces two keys with one digest.
        plain = select(literal(1)).select_from(letters).where(letters.c.key_digest == key_digest(filter_.key))
        return _count_rows(connection, [plain.where(*build_time_conditions(filter_, None))])
    if filter_.words or filter_.key is not None or filter_.of_history:
        return None
    if filter_.since is None and filter_.until is None:
        return count_by_tallies(connection, filter_), True
    if selects_kinds(filter_):
        return _count_ranges(connection, find_kind_ranges(connection, filter_, None), filter_)
    plain = select(literal(1)).select_from(letters).where(*build_time_conditions(filter_, None))
    return _count_rows(connection, select_by_status(filter_, plain))


def weigh_letters(
    connection: Connection, filter_: LetterFilter, most: int, among: Sequence[int] | None = None
) -> LetterWeight:
    """Return the exact weight of a filter's letters, of at most `most` + 1 letters.

    Parameters:
        among: as in `build_letter_conditions`.
    """
    size = case((letters.c.value.is_(None), 0), else_=letters.c.value_size).label("size")
    some = select(size).where(*build_letter_conditions(filter_, among=among)).limit(most + 1).subquery()
    counted = select(func.count(), func.coalesce(func.sum(some.c.size), 0))
    return LetterWeight(*map(int, connection.execute(counted).one()))


def _count_ranges(connection: Connection, found: Sequence[KindRange], filter_: LetterFilter) -> tuple[int, bool]:
    """Return the count of the ranges, the largest first, which may be enough."""
    largest = sorted(found, key=lambda each: -each.size)
    plain = select(literal(1).label("one")).select_from(letters).where(*build_time_conditions(filter_, None))
    if connection.dialect.name == "postgresql":
        return _count_rows(connection, [select_side_by_side(largest, plain.limit(MOST_COUNTED + 1))])
    of_each = (plain.where(letters.c.kind_id == each.kind_id, letters.c.status == each.status) for each in largest)
    return _count_rows(connection, of_each)


def _count_rows(connection: Connection, statements: Any) -> tuple[int, bool]:
    number = 0
    for statement in statements:
        some = statement.limit(MOST_COUNTED + 1 - number).subquery()
        number += connection.execute(select(func.count()).select_from(some)).scalar_one()
        if number > MOST_COUNTED:
            return MOST_COUNTED, False
    return number, True
