"""Groups read, and marked as fixed: from kinds and what is counted of them, never from letters."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, func, select, update

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.store.matching import Condition, kind_conditions, one_of
from bridge.deadletters.store.schema import groups, hours, kinds, tallies


class Found(NamedTuple):
    """What there is of some groups.

    Attributes:
        rows: of `groups`.
        statuses: by group, how many letters have each status.
        kinds: by group, what its letters have of versions, reasons, topics and origins.
        hours: by group, failures by hour.
    """

    rows: Sequence[Row[Any]]
    statuses: dict[int, dict[str, int]]
    kinds: dict[int, list[Row[Any]]]
    hours: dict[int, dict[int, int]]


def find(connection: Connection, asked: Filter, since_hour: int) -> Found:
    """The groups that have letters of a filter, with the hours of late."""
    rows = connection.execute(select(groups).where(*meant(asked))).all()
    its = one_of(kinds.c.group_id, [row.id for row in rows])
    return Found(rows, _statuses(connection, its), _kinds(connection, its), _hours(connection, its, since_hour))


def meant(asked: Filter) -> Iterator[Condition]:
    """What a group must fulfil that has letters of a filter."""
    yield groups.c.id.in_(_having(asked))
    if asked.since is not None:
        yield groups.c.last_at >= asked.since


class Marks(NamedTuple):
    """As what somebody has seen a group who decides whether it is fixed."""

    fixed_in: str | None
    fixed_at: int | None
    regressed_at: int | None


def mark(connection: Connection, id_: int, version: str, at: int, by: str, seen: Marks | None = None) -> bool:
    """Note that a group is mended in a version, anew; whether there is such a group, and it is as it was seen."""
    return _change(connection, id_, seen, fixed_in=version, fixed_at=at, fixed_by=by)


def unmark(connection: Connection, id_: int, seen: Marks | None = None) -> bool:
    """Take that back; whether there is such a group, and it is as it was seen."""
    return _change(connection, id_, seen, fixed_in=None, fixed_at=None, fixed_by=None)


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


def _hours(connection: Connection, its: Condition, since: int) -> dict[int, dict[int, int]]:
    counted = select(kinds.c.group_id, hours.c.hour, func.sum(hours.c.count))
    counted = counted.join(hours, hours.c.kind_id == kinds.c.id).where(its, hours.c.hour >= since)
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for group, hour, count in connection.execute(counted.group_by(kinds.c.group_id, hours.c.hour)):
        found[group][hour] = int(count)
    return found
