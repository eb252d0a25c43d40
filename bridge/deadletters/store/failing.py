"""How letters failed, as a simulation asks: a few columns of many rows, as they come."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.letters.simulating import Failing
from bridge.deadletters.store.matching import matching
from bridge.deadletters.store.schema import kinds, letters

#: Rows that are fetched at once.
AT_ONCE = 5_000


def failing(connection: Connection, asked: Filter) -> Iterator[Failing]:
    """The letters of a filter, in no order."""
    columns = (kinds.c.group_id, kinds.c.error_class, kinds.c.reason)
    times = (letters.c.runs, letters.c.first_failed_at, letters.c.failed_at)
    found = matching(asked).with_only_columns(*columns, *times).join(kinds, kinds.c.id == letters.c.kind_id)
    return (Failing(*row) for row in _streamed(connection, found))


def resolved(connection: Connection, handler: str) -> Iterator[tuple[int, int]]:
    """Groups of a handler, and when a letter of each was replayed with success (ms since the epoch)."""
    found = (
        select(kinds.c.group_id, letters.c.status_at)
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .where(kinds.c.handler == handler, letters.c.status == Status.RESOLVED)
    )
    return ((row.group_id, row.status_at) for row in _streamed(connection, found))


def _streamed(connection: Connection, statement: Select[Any]) -> Any:
    return connection.execute(statement.execution_options(yield_per=AT_ONCE))
