"""The audit trail: who did what and when, written with the act itself, and never deleted."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select

from bridge.deadletters.store import requests
from bridge.deadletters.store.schema import items, trail


class Entry(NamedTuple):
    """What somebody did.

    Attributes:
        at: ms since the epoch.
        what: "note", "replay", "discard", …
        said: in words: the note, the reason, what was asked for.
        letter: the delivery in words, for when its row is gone; empty where it was not about a single one.
    """

    id: int
    at: int
    by: str
    what: str
    said: str
    letter_id: int | None
    letter: str
    group_id: int | None
    plan_id: int | None


def write(
    connection: Connection,
    at: int,
    by: str,
    what: str,
    said: str,
    *,
    letter_id: int | None = None,
    letter: str = "",
    group_id: int | None = None,
    plan_id: int | None = None,
) -> int:
    """Add what somebody does in this transaction: it stands in the trail if, and only if, it was done.

    Returns: its number.

    Raises:
        RequestTakenOver: it is a request's (`Database.doing`) that another process does by now.
    """
    whom = {"letter_id": letter_id, "letter": letter, "group_id": group_id, "plan_id": plan_id}
    written = insert(trail).values(at=at, by=by, what=what, said=said, **whom).returning(trail.c.id)
    id_ = int(connection.execute(written).scalar_one())
    if claim := connection.get_execution_options().get("desk_claim"):
        requests.done(connection, claim, id_)
    return id_


def one(connection: Connection, id_: int) -> Entry | None:
    """An entry."""
    row = connection.execute(select(trail).where(trail.c.id == id_)).first()
    return None if row is None else Entry(*row)


def of(
    connection: Connection,
    *,
    letter_id: int | None = None,
    group_id: int | None = None,
    plan_id: int | None = None,
    last: int = 200,
) -> list[Entry]:
    """What was done, oldest first: with a letter (also by plans in which it was), a group or a plan; or all.

    Parameters:
        last: how many entries at most, the latest.
    """
    asked = select(trail)
    if letter_id is not None:
        plans = select(items.c.plan_id).where(items.c.letter_id == letter_id)
        asked = asked.where(or_(trail.c.letter_id == letter_id, trail.c.plan_id.in_(plans)))
    if group_id is not None:
        asked = asked.where(trail.c.group_id == group_id)
    if plan_id is not None:
        asked = asked.where(trail.c.plan_id == plan_id)
    rows = connection.execute(asked.order_by(trail.c.id.desc()).limit(last)).all()
    return [Entry(*row) for row in reversed(rows)]


def page(connection: Connection, by: str, what: Sequence[str], before: int | None, limit: int) -> list[Entry]:
    """What was done, newest first.

    Parameters:
        by: who; empty: anybody.
        what: as it is written; empty: anything.
        before: the entry behind which it goes on.
    """
    asked = select(trail).where(*_did(by, what)).order_by(trail.c.id.desc()).limit(limit)
    if before is not None:
        asked = asked.where(trail.c.id < before)
    return [Entry(*row) for row in connection.execute(asked)]


def count(connection: Connection, by: str, what: Sequence[str]) -> int:
    """How much of it there is; by whom and what as `page`."""
    return int(connection.execute(select(func.count()).select_from(trail).where(*_did(by, what))).scalar_one())


def _did(by: str, what: Sequence[str]) -> list[ColumnElement[bool]]:
    return [*([trail.c.by == by] if by else []), *([trail.c.what.in_(what)] if what else [])]
