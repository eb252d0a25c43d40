"""What of groups is not counted: which plan has their letters, which died again, in which versions they failed."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, ScalarSelect, case, func, literal_column, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.matching import one_of
from bridge.deadletters.store.schema import groups, hours, kinds, letters, tallies
from bridge.deadletters.store.times import HOUR

#: Most groups that another is compared with.
_BESIDE: Final = 200


def plans(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """By group, a plan that has letters of it under way."""
    asked = select(groups.c.id, _replaying().label("plan")).where(one_of(groups.c.id, group_ids))
    return {group: plan for group, plan in connection.execute(asked) if plan is not None}


def died_again(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """By group, how many of its open letters have died more than once: by an index that has these alone."""
    asked = select(groups.c.id, _again().label("letters")).where(one_of(groups.c.id, group_ids))
    return {group: int(count) for group, count in connection.execute(asked) if count}


def by_version(connection: Connection, group_id: int) -> dict[str, tuple[int, int]]:
    """By version, how many letters of a group failed last in it, and how many of these are open."""
    is_open = case((tallies.c.status == Status.OPEN, tallies.c.count), else_=0)
    counted = (
        select(kinds.c.version, func.sum(tallies.c.count), func.sum(is_open))
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(kinds.c.group_id == group_id, tallies.c.count > 0)
        .group_by(kinds.c.version)
    )
    return {version: (int(count), int(still)) for version, count, still in connection.execute(counted)}


def hours_by_version(connection: Connection, group_id: int) -> dict[str, tuple[int, int]]:
    """By version, the first and the last hour in which a group failed, each by its beginning, ms since the epoch."""
    ends = select(kinds.c.version, func.min(hours.c.hour), func.max(hours.c.hour)).join(
        hours, hours.c.kind_id == kinds.c.id
    )
    rows = connection.execute(ends.where(kinds.c.group_id == group_id).group_by(kinds.c.version))
    return {version: (int(first) * HOUR, int(last) * HOUR) for version, first, last in rows}


def beside(connection: Connection, group_id: int) -> list[int]:
    """The other groups that have letters of a group's topics, those that were made last; not all, if there are many."""
    topics = select(kinds.c.topic).where(kinds.c.group_id == group_id)
    found = select(kinds.c.group_id).where(kinds.c.topic.in_(topics), kinds.c.group_id != group_id).distinct()
    return [*connection.execute(found.order_by(kinds.c.group_id.desc()).limit(_BESIDE)).scalars()]


def _replaying() -> ScalarSelect[Any]:
    """The plan of one letter of the group that is asked for."""
    found = select(letters.c.plan_id).where(_of_group(), letters.c.status == Status.REPLAYING)
    return found.limit(1).correlate(groups).scalar_subquery()


def _again() -> ScalarSelect[Any]:
    """How many letters of the group that is asked for have died more than once, and are open."""
    # Not as a parameter: so the index of these is used.
    again = (letters.c.failures > literal_column("1"), letters.c.status == Status.OPEN)
    return select(func.count(letters.c.id)).where(_of_group(), *again).correlate(groups).scalar_subquery()


def _of_group() -> ColumnElement[bool]:
    """Whether a letter is of the group that is asked for: of one of its kinds, which are few."""
    its = select(kinds.c.id).where(kinds.c.group_id == groups.c.id).correlate(groups)
    return letters.c.kind_id.in_(its)
