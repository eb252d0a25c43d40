"""The letters that a filter selects, newest first by pages, and how many there are.

Each query reads a bounded number of rows, so a page may be short and still not be the last. A page is exact: it
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

from bridge.deadletters.db import search_index
from bridge.deadletters.db.filter_sql import (
    build_content_conditions,
    build_kind_conditions,
    build_letter_conditions,
    build_standing_conditions,
    build_time_conditions,
    is_one_of,
)
from bridge.deadletters.db.schema import kinds, letters, tallies
from bridge.deadletters.model.letter_filter import LetterCursor, LetterFilter
from bridge.deadletters.model.stored_letter import key_digest

NEWEST_FIRST = (letters.c.failed_at.desc(), letters.c.id.desc())


class KindRange(NamedTuple):
    """The letters of a kind and status.

    Attributes:
        size: how many there are, at any time.
        newest_at: when the newest of those that are asked for failed; `None`: there is none.
    """

    kind_id: int
    status: str
    size: int
    newest_at: int | None


def selects_kinds(asked: LetterFilter) -> bool:
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


def find_kind_ranges(connection: Connection, asked: LetterFilter, before: LetterCursor | None) -> list[KindRange]:
    """The ranges in which a filter's letters lie, by kind and status, those that have none left out."""
    newest = (
        select(letters.c.failed_at)
        .where(
            letters.c.kind_id == tallies.c.kind_id,
            letters.c.status == tallies.c.status,
            *build_time_conditions(asked, before),
        )
        .order_by(*NEWEST_FIRST)
        .limit(1)
        .scalar_subquery()
    )
    statement = select(tallies, newest).join(kinds, kinds.c.id == tallies.c.kind_id)
    statement = statement.where(tallies.c.count > 0, *build_kind_conditions(asked))
    if asked.statuses:
        statement = statement.where(tallies.c.status.in_(asked.statuses))
    return [found for row in connection.execute(statement) if (found := KindRange(*row)).newest_at is not None]


def count_by_tallies(connection: Connection, asked: LetterFilter) -> int:
    """How many letters a filter means by its kinds and statuses alone."""
    found = select(func.coalesce(func.sum(tallies.c.count), 0)).join(kinds, kinds.c.id == tallies.c.kind_id)
    if asked.statuses:
        found = found.where(tallies.c.status.in_(asked.statuses))
    return int(connection.execute(found.where(*build_kind_conditions(asked))).scalar_one())


def merge_newest_letters(
    connection: Connection, found: Sequence[KindRange], asked: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """The newest letters of some ranges, newest first."""
    kept = _keep_newest_ranges(found, most)
    if connection.dialect.name == "postgresql":
        found_in = select_side_by_side(kept, _select_newest(asked, before, most))
        newest = found_in.order_by(*(column.desc() for column in found_in.selected_columns)).limit(most)
        return [LetterCursor(row.failed_at, row.id) for row in connection.execute(newest)]
    return nlargest(most, _walk_ranges(connection, kept, asked, before, most))


def walk_newest_letters(
    connection: Connection, asked: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """The newest letters of all kinds, of the filter's statuses and time; newest first."""
    each = select_by_status(asked, _select_newest(asked, before, most))
    rows = (row for statement in each for row in connection.execute(statement))
    return nlargest(most, (LetterCursor(row.failed_at, row.id) for row in rows))


def select_by_status(asked: LetterFilter, plain: Select[Any]) -> list[Select[Any]]:
    """A statement on letters for each status that a filter names; or one for all."""
    return [plain.where(letters.c.status == status) for status in sorted(set(asked.statuses))] or [plain]


def _keep_newest_ranges(found: Sequence[KindRange], most: int) -> list[KindRange]:
    if len(found) <= most:
        return list(found)
    (*_, last) = nlargest(most, (each.newest_at or 0 for each in found))
    return [each for each in found if (each.newest_at or 0) >= last]


def _select_newest(asked: LetterFilter, before: LetterCursor | None, most: int) -> Select[tuple[int, int]]:
    found = select(letters.c.failed_at, letters.c.id).where(*build_time_conditions(asked, before))
    return found.order_by(*NEWEST_FIRST).limit(most)


def _walk_ranges(
    connection: Connection, found: Sequence[KindRange], asked: LetterFilter, before: LetterCursor | None, most: int
) -> Iterator[LetterCursor]:
    statement = _select_newest(asked, before, most).where(
        letters.c.kind_id == bindparam("of_kind"), letters.c.status == bindparam("of_status")
    )
    for each in found:
        for row in connection.execute(statement, {"of_kind": each.kind_id, "of_status": each.status}):
            yield LetterCursor(row.failed_at, row.id)


def select_side_by_side(found: Sequence[KindRange], plain: Select[Any]) -> Select[Any]:
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


class CursorPage(NamedTuple):
    """A part of a list.

    Attributes:
        letters: newest first.
        next: where the next one begins; `None`: there is none.
    """

    letters: list[LetterCursor]
    next: LetterCursor | None


def find_letter_page(
    connection: Connection, asked: LetterFilter, limit: int, before: LetterCursor | None = None
) -> CursorPage:
    """The newest letters of a filter, behind a letter where one is given.

    Parameters:
        limit: most letters; fewer do not mean that there are no more.
    """
    if asked.ids:
        return _page_by_sorting(connection, asked, limit, before)
    if asked.words:
        return _page_by_words(connection, asked, limit, before)
    if asked.key is not None or asked.of_history:
        return look_through_newest(connection, asked, limit, before)
    if selects_kinds(asked):
        return _page_by_kinds(connection, asked, limit, before)
    return _cut_page(walk_newest_letters(connection, asked, before, limit + 1), limit)


def look_through_newest(
    connection: Connection, asked: LetterFilter, limit: int, before: LetterCursor | None = None, most: int = STRIDE
) -> CursorPage:
    """The newest letters of a filter among the newest that it might mean.

    Parameters:
        most: how many of those are looked at; the first few first, which may be enough.
    """
    found: list[LetterCursor] = []
    stride = limit + 1
    while True:
        stride = min(stride, most)
        part = _keep_matching(
            connection, asked, _find_candidates(connection, asked, before, stride), limit - len(found), stride
        )
        found += part.letters
        most -= stride
        if part.next is None or not most or len(found) == limit:
            return CursorPage(found, part.next)
        before, stride = part.next, stride * FURTHER


def has_rare_words(connection: Connection, asked: LetterFilter, most: int | None = None) -> bool:
    """Whether few letters have a filter's words, of whatever else it says: at most `RARE`, or so many."""
    few = RARE if most is None else most
    some = search_index.select_letters_with_words(asked.words).limit(few + 1).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() <= few


def _page_by_words(connection: Connection, asked: LetterFilter, limit: int, before: LetterCursor | None) -> CursorPage:
    near = look_through_newest(connection, asked, limit, before, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    if has_rare_words(connection, asked):
        return _page_by_sorting(connection, asked, limit, before)
    far = look_through_newest(connection, asked, limit - len(near.letters), near.next)
    return CursorPage([*near.letters, *far.letters], far.next)


def _page_by_kinds(connection: Connection, asked: LetterFilter, limit: int, before: LetterCursor | None) -> CursorPage:
    """Of kinds that are common the newest letters of all have enough; of others each has its range."""
    near = _keep_matching(connection, asked, walk_newest_letters(connection, asked, before, FIRST), limit, FIRST)
    if near.next is None or len(near.letters) == limit:
        return near
    return _cut_page(
        merge_newest_letters(connection, find_kind_ranges(connection, asked, before), asked, before, limit + 1), limit
    )


def _page_by_sorting(
    connection: Connection, asked: LetterFilter, limit: int, before: LetterCursor | None
) -> CursorPage:
    """Of a filter that few letters can fulfil: all that do are sorted."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *build_letter_conditions(asked, few=True), *build_time_conditions(asked, before, few=True)
    )
    rows = connection.execute(found.order_by(*NEWEST_FIRST).limit(limit + 1))
    return _cut_page([LetterCursor(row.failed_at, row.id) for row in rows], limit)


def _find_candidates(
    connection: Connection, asked: LetterFilter, before: LetterCursor | None, most: int
) -> list[LetterCursor]:
    """The newest of those that a filter might mean."""
    if asked.key is not None:
        of_key = select(letters.c.failed_at, letters.c.id).where(letters.c.key_digest == key_digest(asked.key))
        rows = connection.execute(
            of_key.where(*build_time_conditions(asked, before)).order_by(*NEWEST_FIRST).limit(most)
        )
        return [LetterCursor(row.failed_at, row.id) for row in rows]
    if selects_kinds(asked) and count_by_tallies(connection, asked) <= FEW:
        return merge_newest_letters(connection, find_kind_ranges(connection, asked, before), asked, before, most)
    return walk_newest_letters(connection, asked, before, most)


def _keep_matching(
    connection: Connection, asked: LetterFilter, seen: Sequence[LetterCursor], limit: int, most: int
) -> CursorPage:
    """Those of some letters that a filter means; fewer letters than `most` were all that there are."""
    fit = {each.id for each in seen}
    # In two statements, each by ids: of one PostgreSQL would rather read all letters of the kinds.
    if fit and asked.words:
        fit = {*connection.execute(search_index.select_among_with_words(sorted(fit), asked.words)).scalars()}
    if fit and (rest := [*build_standing_conditions(asked, few=True), *build_content_conditions(asked)]):
        some = select(letters.c.id).where(is_one_of(letters.c.id, sorted(fit)), *rest)
        fit = {*connection.execute(some).scalars()}
    found = [each for each in seen if each.id in fit]
    if len(found) > limit:
        return CursorPage(found[:limit], found[limit - 1])
    return CursorPage(found, seen[-1] if len(seen) == most else None)


def _cut_page(found: list[LetterCursor], limit: int) -> CursorPage:
    return CursorPage(found[:limit], found[limit - 1] if len(found) > limit else None)


def find_newer_letters(connection: Connection, asked: LetterFilter, limit: int, after: LetterCursor) -> CursorPage:
    """The letters of a filter just newer than one, nearest first; `next` is where to look on, further on.

    It looks at so many letters at most, whatever there is; so it may find fewer, or none, and yet not be at the end.
    """
    seen = _find_newer_candidates(connection, asked, after)
    fit = {each.id for each in seen}
    if fit and asked.words:
        fit = {*connection.execute(search_index.select_among_with_words(sorted(fit), asked.words)).scalars()}
    if fit and (rest := [*build_standing_conditions(asked, few=True), *build_content_conditions(asked)]):
        fit = {*connection.execute(select(letters.c.id).where(is_one_of(letters.c.id, sorted(fit)), *rest)).scalars()}
    found = [each for each in seen if each.id in fit]
    if len(found) > limit:
        return CursorPage(found[:limit], found[limit - 1])
    return CursorPage(found, seen[-1] if len(seen) == STRIDE else None)


def _find_newer_candidates(connection: Connection, asked: LetterFilter, after: LetterCursor) -> list[LetterCursor]:
    """The letters that it might be, by the end of an index."""
    found = select(letters.c.failed_at, letters.c.id).where(
        *build_time_conditions(asked, None),
        letters.c.failed_at >= after.failed_at,
        tuple_(letters.c.failed_at, letters.c.id) > tuple_(after.failed_at, after.id),
    )
    if asked.ids:
        found = found.where(is_one_of(letters.c.id, asked.ids))
    if asked.key is not None:
        found = found.where(letters.c.key_digest == key_digest(asked.key))
    if len(asked.statuses) == 1:
        found = found.where(letters.c.status == asked.statuses[0])
    rows = connection.execute(found.order_by(letters.c.failed_at, letters.c.id).limit(STRIDE))
    return [LetterCursor(row.failed_at, row.id) for row in rows]


#: Rows that are counted one by one, where no tally has them.
MOST_COUNTED: Final = 10_000
#: Letters that are looked at for what no index has.
MOST_LOOKED_THROUGH: Final = 1_500


class LetterWeight(NamedTuple):
    """How much there is to do with letters.

    Attributes:
        octets: of their values, as far as the database has them.
    """

    letters: int
    octets: int


def count_letters(connection: Connection, asked: LetterFilter) -> tuple[int, bool, int | None]:
    """How many letters a filter means, whether that is exact, and among how many of the newest it was counted.

    What is not exact is a lower bound; the last is `None` where the count ended only because it had enough.
    """
    if (found := _count_by_index(connection, asked)) is not None:
        return (*found, None)
    newest = look_through_newest(connection, asked, MOST_LOOKED_THROUGH, most=MOST_LOOKED_THROUGH)
    return len(newest.letters), newest.next is None, None if newest.next is None else MOST_LOOKED_THROUGH


def _count_by_index(connection: Connection, asked: LetterFilter) -> tuple[int, bool] | None:
    """As `count`; `None` where no index or tally has all that is asked for."""
    if asked.words and asked == LetterFilter(text=asked.text):
        return _count_rows(connection, [search_index.select_letters_with_words(asked.words)])
    if asked.ids or (asked.words and has_rare_words(connection, asked, MOST_COUNTED)):
        return _count_rows(
            connection, [select(literal(1)).where(*build_letter_conditions(asked, few=True)).select_from(letters)]
        )
    if asked.key is not None and asked == LetterFilter(key=asked.key, since=asked.since, until=asked.until):
        # By the digest alone: what stands for two keys would have to be looked for on purpose.
        plain = select(literal(1)).select_from(letters).where(letters.c.key_digest == key_digest(asked.key))
        return _count_rows(connection, [plain.where(*build_time_conditions(asked, None))])
    if asked.words or asked.key is not None or asked.of_history:
        return None
    if asked.since is None and asked.until is None:
        return count_by_tallies(connection, asked), True
    if selects_kinds(asked):
        return _count_ranges(connection, find_kind_ranges(connection, asked, None), asked)
    plain = select(literal(1)).select_from(letters).where(*build_time_conditions(asked, None))
    return _count_rows(connection, select_by_status(asked, plain))


def weigh_letters(connection: Connection, asked: LetterFilter, most: int) -> LetterWeight:
    """What a filter means, exactly; of one letter more than `most` at the most."""
    size = case((letters.c.value.is_(None), 0), else_=letters.c.value_size).label("size")
    some = select(size).where(*build_letter_conditions(asked)).limit(most + 1).subquery()
    counted = select(func.count(), func.coalesce(func.sum(some.c.size), 0))
    return LetterWeight(*map(int, connection.execute(counted).one()))


def _count_ranges(connection: Connection, found: Sequence[KindRange], asked: LetterFilter) -> tuple[int, bool]:
    """The largest first: they may be enough."""
    largest = sorted(found, key=lambda each: -each.size)
    plain = select(literal(1).label("one")).select_from(letters).where(*build_time_conditions(asked, None))
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
