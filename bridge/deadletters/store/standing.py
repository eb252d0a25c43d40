"""What of groups is not counted: which plan has their letters, which died again, in which versions they failed."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.schema import failures, kinds, letters, tallies


def plans(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """By group, a plan that has letters of it under way."""
    found = {id_: connection.execute(_replaying(id_)).scalar() for id_ in group_ids}
    return {group: plan for group, plan in found.items() if plan is not None}


def died_again(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """By group, how many of its open letters have died more than once: found by their history, which few have."""
    again = select(failures.c.letter_id).distinct().subquery()
    counted = (
        select(kinds.c.group_id, func.count())
        .select_from(again)
        .join(letters, letters.c.id == again.c.letter_id)
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .where(letters.c.status == Status.OPEN, kinds.c.group_id.in_(group_ids))
    )
    rows = connection.execute(counted.group_by(kinds.c.group_id))
    return {group: int(count) for group, count in rows}


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


def _replaying(group_id: int) -> Select[Any]:
    its = select(kinds.c.id).where(kinds.c.group_id == group_id)
    return select(letters.c.plan_id).where(letters.c.kind_id.in_(its), letters.c.status == Status.REPLAYING).limit(1)
