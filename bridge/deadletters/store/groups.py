"""Groups read, and marked as fixed: from kinds and what is counted of them, never from letters."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.store.matching import Condition, kind_conditions, one_of
from bridge.deadletters.store.schema import cause_fixes, groups, hours, kinds, tallies


class Found(NamedTuple):
    """What there is of some groups.

    Attributes:
        rows: of `groups`.
        statuses: by group, how many letters have each status.
        kinds: by group, what its letters have of versions, reasons, topics and origins.
        hours: by group, failures by hour.
        fixes: by group, of `cause_fixes`.
    """

    rows: Sequence[Row[Any]]
    statuses: dict[int, dict[str, int]]
    kinds: dict[int, list[Row[Any]]]
    hours: dict[int, dict[int, int]]
    fixes: dict[int, list[Row[Any]]]


def find(connection: Connection, asked: Filter, since_hour: int) -> Found:
    """The groups that have letters of a filter, with the hours of late."""
    rows = connection.execute(select(groups).where(*meant(asked))).all()
    its = one_of(kinds.c.group_id, [row.id for row in rows])
    hours, fixes = _hours(connection, its, since_hour), _fixes(connection, [row.id for row in rows])
    return Found(rows, _statuses(connection, its), _kinds(connection, its), hours, fixes)


def meant(asked: Filter) -> Iterator[Condition]:
    """What a group must fulfil that has letters of a filter."""
    yield groups.c.id.in_(_having(asked))
    if asked.since is not None:
        yield groups.c.last_at >= asked.since


class Marks(NamedTuple):
    """The marks of a group or cause that somebody saw who decides whether it is fixed."""

    fixed_in: str | None
    fixed_at: int | None
    regressed_at: int | None


def mark(connection: Connection, id_: int, version: str, at: int, by: str, seen: Marks | None = None) -> bool:
    """Note that a group is mended in a version, anew; whether there is such a group, and it is as it was seen."""
    return _change(connection, id_, seen, fixed_in=version, fixed_at=at, fixed_by=by)


def unmark(connection: Connection, id_: int, seen: Marks | None = None) -> bool:
    """Take that back; whether there is such a group, and it is as it was seen."""
    return _change(connection, id_, seen, fixed_in=None, fixed_at=None, fixed_by=None)


def has_cause(connection: Connection, id_: int, cause: str) -> bool:
    """Whether a group has letters of a cause, or had."""
    asked = select(kinds.c.id).where(kinds.c.group_id == id_, kinds.c.cause == cause).limit(1)
    return connection.execute(asked).first() is not None


def mark_cause(
    connection: Connection, id_: int, cause: str, fixed: tuple[str, int, str] | None, seen: Marks | None = None
) -> bool:
    """Note that a cause is fixed, anew, or take that back; whether it is as it was seen.

    Parameters:
        fixed: in which version, when and who says so; `None`: it is not.
    """
    # Two who mark it first, and a recorder, wait for each other.
    connection.execute(select(groups.c.id).where(groups.c.id == id_).with_for_update())
    its = (cause_fixes.c.group_id == id_, cause_fixes.c.cause == cause)
    columns = (cause_fixes.c[name] for name in Marks._fields)
    row = connection.execute(select(*columns).where(*its)).first()
    if seen is not None and seen != (Marks(*row) if row else Marks(None, None, None)):
        return False
    connection.execute(delete(cause_fixes).where(*its))
    if fixed is not None:
        values = dict(zip(("fixed_in", "fixed_at", "fixed_by"), fixed, strict=True))
        connection.execute(insert(cause_fixes).values(group_id=id_, cause=cause, **values))
    return True


def _change(connection: Connection, id_: int, seen: Marks | None, **values: Any) -> bool:
    changed = update(groups).where(groups.c.id == id_).values(**values, fixed_plan=None, regressed_at=None)
    if seen is not None:
        changed = changed.where(*(groups.c[name].is_not_distinct_from(each) for name, each in seen._asdict().items()))
    return connection.execute(changed).rowcount == 1


def _having(asked: Filter) -> Select[tuple[int]]:
    found = select(kinds.c.group_id).join(tallies, tallies.c.kind_id == kinds.c.id)
    found = found.where(tallies.c.count > 0, *kind_conditions(asked))
    return found.where(tallies.c.status.in_(asked.statuses)) if asked.statuses else found


def _statuses(connection: Connection, its: Condition) -> dict[int, dict[str, int]]:
    counted = select(kinds.c.group_id, tallies.c.status, func.sum(tallies.c.count))
    counted = counted.join(tallies, tallies.c.kind_id == kinds.c.id).where(its, tallies.c.count > 0)
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for group, status, count in connection.execute(counted.group_by(kinds.c.group_id, tallies.c.status)):
        found[group][status] = int(count)
    return found


def _kinds(connection: Connection, its: Condition) -> dict[int, list[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    columns = (kinds.c[name] for name in ("group_id", "version", "reason", "topic", "origin"))
    for row in connection.execute(select(*columns).where(its)):
        found[row.group_id].append(row)
    return found


def _fixes(connection: Connection, ids: Sequence[int]) -> dict[int, list[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    asked = select(cause_fixes).where(one_of(cause_fixes.c.group_id, ids)).order_by(cause_fixes.c.cause)
    for row in connection.execute(asked):
        found[row.group_id].append(row)
    return found


def _hours(connection: Connection, its: Condition, since: int) -> dict[int, dict[int, int]]:
    counted = select(kinds.c.group_id, hours.c.hour, func.sum(hours.c.count))
    counted = counted.join(hours, hours.c.kind_id == kinds.c.id).where(its, hours.c.hour >= since)
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for group, hour, count in connection.execute(counted.group_by(kinds.c.group_id, hours.c.hour)):
        found[group][hour] = int(count)
    return found
