"""When letters failed: how many of a kind in each hour, and when a group was seen first and last."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

#: Milliseconds of an hour.
HOUR: Final = 3_600_000

_ADD: Final = text(
    "INSERT INTO hours (kind_id, hour, count) VALUES (:kind, :hour, :count) "
    "ON CONFLICT (kind_id, hour) DO UPDATE SET count = hours.count + excluded.count"
)
_SEE: Final = text(
    "UPDATE groups SET first_at = CASE WHEN first_at < :first THEN first_at ELSE :first END, "
    "last_at = CASE WHEN last_at > :last THEN last_at ELSE :last END "
    "WHERE id = :id AND (first_at > :first OR last_at < :last)"
)


def add(connection: Connection, failed: Mapping[tuple[int, int], int]) -> None:
    """Count failures, in the transaction that writes them.

    Parameters:
        failed: (kind's id, hour of Unix time) → how many.
    """
    rows = [{"kind": kind, "hour": hour, "count": count} for (kind, hour), count in sorted(failed.items())]
    if rows:
        connection.execute(_ADD, rows)


def see(connection: Connection, seen: Mapping[int, tuple[int, int]]) -> None:
    """Note when groups were seen.

    Parameters:
        seen: group's id → the first and the last failure, ms since the epoch.
    """
    rows = [{"id": id_, "first": first, "last": last} for id_, (first, last) in sorted(seen.items())]
    if rows:
        connection.execute(_SEE, rows)
