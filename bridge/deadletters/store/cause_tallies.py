"""The causes of failure groups, counted from kinds and tallies: no letter is scanned."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, ScalarSelect, UnaryExpression, select

from bridge.deadletters.store.matching import one_of
from bridge.deadletters.store.schema import kinds, letters, tallies


def count_causes(connection: Connection, group_ids: Sequence[int]) -> list[Any]:
    """Return a row for each kind and status of these groups that has letters.

    Returns:
        `group_id`, `cause`, `status`, `count`, `first_at`, `last_at`, and `newest`, the id of the newest letter.
    """
    newest, oldest = letters.c.failed_at.desc(), letters.c.failed_at.asc()
    asked = (
        select(
            *(kinds.c.group_id, kinds.c.cause, tallies.c.status, tallies.c.count),
            _end(letters.c.failed_at, oldest).label("first_at"),
            _end(letters.c.failed_at, newest).label("last_at"),
            _end(letters.c.id, newest, letters.c.id.desc()).label("newest"),
        )
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(one_of(kinds.c.group_id, group_ids), tallies.c.count > 0)
    )
    return [row for row in connection.execute(asked) if row.newest is not None]


def _end(column: Column[Any], *order: UnaryExpression[Any]) -> ScalarSelect[Any]:
    """A column of the letter at one end of the index of a kind and status."""
    its = letters.c.kind_id == tallies.c.kind_id, letters.c.status == tallies.c.status
    return select(column).where(*its).order_by(*order).limit(1).scalar_subquery()
