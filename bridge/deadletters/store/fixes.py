"""Groups that were marked as fixed in a version: what the desk must know to send their letters back, or to say no."""

from typing import NamedTuple

from sqlalchemy import Connection, exists, func, select, update

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.schema import groups, items, kinds, letters, tallies


class Fix(NamedTuple):
    """A group that was marked.

    Attributes:
        fixed_at: ms since the epoch.
        plan_id: the last plan by which its letters went back.
    """

    group_id: int
    handler: str
    fixed_in: str
    fixed_at: int
    plan_id: int | None


def fixed(connection: Connection) -> list[Fix]:
    """The groups that are marked, and of which nothing has failed again."""
    columns = (groups.c.id, groups.c.handler, groups.c.fixed_in, groups.c.fixed_at, groups.c.fixed_plan)
    rows = connection.execute(select(*columns).where(groups.c.fixed_in.is_not(None)).order_by(groups.c.id))
    return [Fix(*row) for row in rows]


def open_versions(connection: Connection, group_id: int) -> dict[str, int]:
    """By version in which they failed, how many open letters a group has."""
    asked = (
        select(kinds.c.version, func.sum(tallies.c.count))
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(kinds.c.group_id == group_id, tallies.c.status == Status.OPEN, tallies.c.count > 0)
        .group_by(kinds.c.version)
    )
    return {version: int(count) for version, count in connection.execute(asked)}


def failed_since(connection: Connection, group_id: int, since: int) -> list[str]:
    """The versions in which letters of a group failed since then (ms)."""
    # Every status is named: so the index of kind, status and time answers it.
    later = exists().where(
        letters.c.kind_id == kinds.c.id, letters.c.status.in_(list(Status)), letters.c.failed_at >= since
    )
    return list(connection.execute(select(kinds.c.version).where(kinds.c.group_id == group_id, later)).scalars())


def dead_again(connection: Connection, plan_id: int) -> list[str]:
    """The versions in which letters of a plan died again, in whatever group."""
    asked = (
        select(kinds.c.version)
        .join(letters, letters.c.kind_id == kinds.c.id)
        .join(items, items.c.letter_id == letters.c.id)
        .where(items.c.plan_id == plan_id, items.c.state == "dead")
        .distinct()
    )
    return list(connection.execute(asked).scalars())


def hold(connection: Connection, fix: Fix) -> bool:
    """Whether a group is as it was read; then it is nobody else's to change until the transaction ends."""
    unchanged = (
        groups.c.id == fix.group_id,
        groups.c.fixed_in == fix.fixed_in,
        groups.c.fixed_at == fix.fixed_at,
        groups.c.fixed_plan.is_not_distinct_from(fix.plan_id),
    )
    return connection.execute(select(groups.c.id).where(*unchanged).with_for_update()).first() is not None


def planned(connection: Connection, fix: Fix, plan_id: int) -> None:
    """Note the plan by which a group's letters go back."""
    connection.execute(update(groups).where(groups.c.id == fix.group_id).values(fixed_plan=plan_id))


def regressed(connection: Connection, fix: Fix, at: int) -> None:
    """A letter has failed in that version again: the group is as it was before it was marked, and says so."""
    connection.execute(update(groups).where(groups.c.id == fix.group_id).values(fixed_in=None, regressed_at=at))
