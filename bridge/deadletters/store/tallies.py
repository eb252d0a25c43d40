"""How many letters of a kind have a status, kept with every change: so no question counts rows."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

#: What changed: (kind's id, status) → how many more, or fewer.
Changes = Mapping[tuple[int, str], int]

_ADD = text(
    "INSERT INTO tallies (kind_id, status, count) VALUES (:kind, :status, :count) "
    "ON CONFLICT (kind_id, status) DO UPDATE SET count = tallies.count + excluded.count"
)


def add(connection: Connection, changes: Changes) -> None:
    """Count what changed, in the transaction that changed it.

    Rows are taken in one order whoever counts: two transactions that wait for each other's row would both be undone.
    """
    rows = [{"kind": kind, "status": status, "count": count} for (kind, status), count in sorted(changes.items())]
    if rows := [row for row in rows if row["count"]]:
        connection.execute(_ADD, rows)
