"""What of letters may be quoted by their errors, read for lists: by whom it is not to be seen there."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, null, select

from bridge.deadletters.letters.letter import unpacked
from bridge.deadletters.store.matching import one_of
from bridge.deadletters.store.schema import kinds, letters
from bridge.records.message import Headers


class Contents(NamedTuple):
    """Of a letter.

    Attributes:
        topic: the source.
        is_whole: whether `value` is what failed: not, where it is too large.
    """

    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None
    is_whole: bool


def contents(connection: Connection, ids: Collection[int], largest: int) -> dict[int, Contents]:
    """Of these letters.

    Parameters:
        largest: bytes; what is larger is not read.
    """
    value = case((letters.c.value_size <= largest, letters.c.value), else_=null()).label("value")
    found = select(letters.c.id, kinds.c.topic, letters.c.key, letters.c.headers, value, letters.c.value_size)
    found = found.join(kinds, kinds.c.id == letters.c.kind_id).where(one_of(letters.c.id, list(ids)))
    return {row.id: _contents(row) for row in connection.execute(found)}


def _contents(row: Any) -> Contents:
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    return Contents(row.topic, key, unpacked(bytes(row.headers)), value, value is not None or row.value_size < 0)
