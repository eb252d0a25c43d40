"""A letter's status changes here: only from the status that was expected, and counted in the same step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, select, update

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store import tallies
from bridge.deadletters.store.among import among
from bridge.deadletters.store.schema import letters

Value = TypeVar("Value")

#: Ids in one statement: SQLite takes 32,766 values, PostgreSQL 65,535.
AT_ONCE: Final = 5_000


def move(
    connection: Connection, ids: Iterable[int], from_: Status, to: Status, at: int, plan_id: int | None = None
) -> list[int]:
    """Change the status of those letters that have the expected one, and return their ids, ascending.

    Of two who move the same letter at once, one does; the other finds it in another status.

    Parameters:
        connection: a transaction that writes.
        at: ms since the epoch.
        plan_id: the plan that sends them back from now on; `None`: what is noted stays.
    """
    changed: dict[str, Any] = {"status": to, "status_at": at} | ({} if plan_id is None else {"plan_id": plan_id})
    moved: list[int] = []
    for some in in_parts(sorted(set(ids))):
        found = _locked(connection, some, from_)
        if not found:
            continue
        mine = [id_ for id_, _ in found]
        connection.execute(update(letters).where(among(letters.c.id, mine)).values(changed))
        changes: Counter[tuple[int, str]] = Counter()
        for _, kind in found:
            changes[kind, str(from_)] -= 1
            changes[kind, str(to)] += 1
        tallies.add(connection, changes)
        moved += mine
    return moved


def locked(connection: Connection, ids: Iterable[int], status: Status) -> list[int]:
    """Return those letters that have a status, ascending, which nobody else changes until the transaction ends."""
    return [id_ for some in in_parts(sorted(set(ids))) for id_, _ in _locked(connection, some, status)]


def _locked(connection: Connection, ids: Sequence[int], status: Status) -> list[tuple[int, int]]:
    """Id and kind of those that have the status, nobody else's to change until the transaction ends.

    In the order of their ids: two transactions that wait for each other's row would both be undone.
    """
    # Which have the status is seen here: by its index SQLite would look through all letters that have it.
    asked = select(letters.c.id, letters.c.kind_id, letters.c.status).where(among(letters.c.id, ids))
    rows = connection.execute(asked.order_by(letters.c.id).with_for_update()).all()
    return [(id_, kind_id) for id_, kind_id, its in rows if its == status]


def in_parts(ids: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """As many at once as a statement takes."""
    return (ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE))
