"""All groups of a filter in a row each, however many letters they have: by what they are put in an order."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, exists, func, or_, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.groups import meant
from bridge.deadletters.store.schema import cause_fixes, groups, hours, kinds, tallies


def rows(connection: Connection, asked: Filter) -> Sequence[Row[Any]]:
    """Of each group that has letters of a filter, how many of all its letters are open, and what it is called."""
    opened = func.sum(case((tallies.c.status == Status.OPEN, tallies.c.count), else_=0)).label("open")
    counted = select(kinds.c.group_id, opened).join(tallies, tallies.c.kind_id == kinds.c.id)
    counts = counted.group_by(kinds.c.group_id).subquery()
    columns: list[ColumnElement[Any]] = [*(groups.c[name] for name in ("id", "error_class", "place", "last_at"))]
    marked = (_marked("fixed_in").label("is_fixed"), _marked("regressed_at").label("came_back"))
    columns += [*marked, counts.c.open]
    found = select(*columns)
    found = found.join(counts, counts.c.group_id == groups.c.id).where(*meant(asked))
    return connection.execute(found).all()


def failing(connection: Connection, since_hour: int, least: int) -> list[int]:
    """The groups that failed so often in one hour, from an hour on: by the index of hours."""
    failed = func.sum(hours.c.count)
    found = select(kinds.c.group_id).join(hours, hours.c.kind_id == kinds.c.id).where(hours.c.hour >= since_hour)
    found = found.group_by(kinds.c.group_id, hours.c.hour).having(failed >= least).distinct()
    return [*connection.execute(found).scalars()]


def regressed(connection: Connection) -> list[int]:
    """Return the groups that failed again in the version in which they, or a cause of theirs, were fixed."""
    return [*connection.execute(select(groups.c.id).where(_marked("regressed_at"))).scalars()]


def _marked(name: str) -> ColumnElement[bool]:
    """Whether a group, or a cause of it, has a mark."""
    of_a_cause = exists().where(cause_fixes.c.group_id == groups.c.id, cause_fixes.c[name].is_not(None))
    return or_(groups.c[name].is_not(None), of_a_cause)
