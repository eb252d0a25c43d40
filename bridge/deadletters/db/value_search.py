"""The search of letters by fields of their values: bounded, and exact within its bounds.

No index knows the fields of values, and values of a schema are not even JSON in the database. So the letters that the
rest of a filter selects are read and compared here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy import Connection, case, null, select

from bridge.deadletters.db.database import PAYLOADS_OPTION, Database
from bridge.deadletters.db.filter_sql import build_letter_conditions, is_one_of
from bridge.deadletters.db.table_definitions import letters
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.payload_codec import PayloadCodec
from bridge.deadletters.model.stored_letter import unpack_headers
from bridge.deadletters.model.value_match import LARGEST, UNREAD, has_value_fields
from bridge.errors import FilterFault

#: Most letters of the rest of a filter among which an action searches, and most bytes of their values.
MOST_SEARCHED: Final = 10_000
MOST_BYTES: Final = 64_000_000
#: Most bytes of values that are compared for one page of a list.
PAGE_BYTES: Final = 16_000_000
_AT_ONCE: Final = 200


class ValueMatches(NamedTuple):
    """The letters that match by their values.

    Attributes:
        ids: those that match.
        seen: how many were compared, in the order that was given: fewer if their values are too large together.
        unread: how many of these have no value that could be compared.
    """

    ids: frozenset[int]
    seen: int
    unread: int


def compare_values(
    connection: Connection, ids: Sequence[int], wanted: Sequence[tuple[str, str]], most: int
) -> ValueMatches:
    """Return which letters have these fields in their values.

    Parameters:
        connection: of a `Database`, which knows how values are read.
        most: bytes of values after which it ends.
    """
    payloads: PayloadCodec = connection.get_execution_options()[PAYLOADS_OPTION]
    fit: list[int] = []
    seen = unread = 0
    while seen < len(ids) and most > 0:
        some = ids[seen : seen + _AT_ONCE]
        found = _read_values(connection, some)
        for id_ in some:
            # A letter without a row was just cleaned up.
            value, headers, size = found.get(id_, (None, b"", -1))
            most -= max(size, 0) if value is not None else 0
            if value is None:
                unread += size >= 0
                continue
            read = payloads.read(value, unpack_headers(headers))
            # It names a schema that does not read it.
            unread += bool(read.schema) and not read.is_decoded
            if has_value_fields(read.value, wanted):
                fit.append(id_)
        seen += len(some)
    return ValueMatches(frozenset(fit), seen, unread)


def find_among(database: Database, filter_: LetterFilter) -> list[int] | None:
    """Return the letters of a filter with fields of values, for an action on all of them; `None`: it names no field.

    Raises:
        FilterFault: the rest of the filter selects more letters, or larger values, than are searched, or some that
            cannot be searched; the message says what to do.
    """
    if not filter_.values:
        return None
    asked = ", ".join(name for name, _ in filter_.values)
    with database.reading() as connection:
        rest = select(letters.c.id).where(*build_letter_conditions(replace(filter_, values=())))
        ids = [*connection.execute(rest.order_by(letters.c.id).limit(MOST_SEARCHED + 1)).scalars()]
        if len(ids) <= MOST_SEARCHED:
            found = compare_values(connection, ids, filter_.values, MOST_BYTES)
    if len(ids) > MOST_SEARCHED:
        raise FilterFault(
            f"The values ({asked}) of at most {MOST_SEARCHED:,} letters are searched for an action, and the rest of "
            "the filter selects more: name a handler, a group, a status or a time besides. Nothing was done."
        )
    if found.seen < len(ids):
        raise FilterFault(
            f"The values ({asked}) of these {len(ids):,} letters are larger than {MOST_BYTES // 1_000_000} MB "
            "together, the most that is searched for an action: name a group or a time besides. Nothing was done."
        )
    if found.unread:
        raise FilterFault(
            f"{found.unread:,} of these {len(ids):,} letters cannot be searched by value ({asked}): of each, {UNREAD}. "
            "Choose letters by their ids, or take the field off the filter. Nothing was done."
        )
    return sorted(found.ids)


def _read_values(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[bytes | None, bytes, int]]:
    """Return value, packed headers and size by letter; a value that is too large is not read."""
    value = case((letters.c.value_size <= LARGEST, letters.c.value), else_=null()).label("value")
    query = select(letters.c.id, value, letters.c.headers, letters.c.value_size).where(is_one_of(letters.c.id, ids))
    # PostgreSQL's driver may return a memoryview.
    return {
        row.id: (None if row.value is None else bytes(row.value), bytes(row.headers), row.value_size)
        for row in connection.execute(query)
    }
