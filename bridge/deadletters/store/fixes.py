"""Groups and causes that were marked as fixed in a version: what decides whether their letters go back."""

from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, exists, func, null, select, union_all, update

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.schema import cause_fixes, groups, items, kinds, letters, tallies


class Fix(NamedTuple):
    """A group, or a cause of it, that was marked.

    Attributes:
        cause: its id; `None`: the whole group.
        fixed_at: ms since the epoch.
        plan_id: the last plan by which its letters went back.
    """

    group_id: int
    cause: str | None
    handler: str
    fixed_in: str
    fixed_at: int
    plan_id: int | None

    @property
    def name(self) -> str:
        """`group 7`, or `cause 1f0c9a… of group 7`."""
        return f"group {self.group_id}" if self.cause is None else f"cause {self.cause} of group {self.group_id}"


def fixed(connection: Connection) -> list[Fix]:
    """Return the groups and causes that are marked, and of which nothing has failed again."""
    names = ("fixed_in", "fixed_at", "fixed_plan")
    whole = select(groups.c.id, null().label("cause"), groups.c.handler, *(groups.c[name] for name in names))
    parts = select(groups.c.id, cause_fixes.c.cause, groups.c.handler, *(cause_fixes.c[name] for name in names))
    parts = parts.join(groups, groups.c.id == cause_fixes.c.group_id)
    both = union_all(
        whole.where(groups.c.fixed_in.is_not(None)), parts.where(cause_fixes.c.fixed_in.is_not(None))
    ).subquery()
    return [Fix(*row) for row in connection.execute(select(both).order_by(both.c.id, both.c.cause))]


def open_versions(connection: Connection, fix: Fix) -> dict[str, int]:
    """Return how many open letters a group or cause has, by the version in which they failed."""
    asked = (
        select(kinds.c.version, func.sum(tallies.c.count))
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(*_of(fix), tallies.c.status == Status.OPEN, tallies.c.count > 0)
        .group_by(kinds.c.version)
    )
    return {version: int(count) for version, count in connection.execute(asked)}


def failed_since(connection: Connection, fix: Fix) -> list[str]:
    """Return the versions in which letters of a group or cause failed since it was marked."""
    # Every status is named: so the index of kind, status and time answers it.
    later = exists().where(
        letters.c.kind_id == kinds.c.id, letters.c.status.in_(list(Status)), letters.c.failed_at >= fix.fixed_at
    )
    return list(connection.execute(select(kinds.c.version).where(*_of(fix), later)).scalars())


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
    """Whether a mark is as it was read; then it is nobody else's to change until the transaction ends."""
    # Who marks a cause locks its group, so that there is something to lock before the first mark.
    connection.execute(select(groups.c.id).where(groups.c.id == fix.group_id).with_for_update())
    table = _table(fix)
    unchanged = (
        table.c.fixed_in == fix.fixed_in,
        table.c.fixed_at == fix.fixed_at,
        table.c.fixed_plan.is_not_distinct_from(fix.plan_id),
    )
    return connection.execute(select(table.c.fixed_at).where(*_its(fix), *unchanged)).first() is not None


def planned(connection: Connection, fix: Fix, plan_id: int) -> None:
    """Note the plan by which the letters go back."""
    connection.execute(update(_table(fix)).where(*_its(fix)).values(fixed_plan=plan_id))


def regressed(connection: Connection, fix: Fix, at: int) -> None:
    """A letter has failed in that version again: nothing is marked any more, and when that was seen is noted."""
    connection.execute(update(_table(fix)).where(*_its(fix)).values(fixed_in=None, regressed_at=at))


def _table(fix: Fix) -> Table:
    return groups if fix.cause is None else cause_fixes


def _its(fix: Fix) -> list[ColumnElement[bool]]:
    """The condition for the row that has the mark."""
    if fix.cause is None:
        return [groups.c.id == fix.group_id]
    return [cause_fixes.c.group_id == fix.group_id, cause_fixes.c.cause == fix.cause]


def _of(fix: Fix) -> list[ColumnElement[bool]]:
    """The condition for the kinds of its letters."""
    whole = [kinds.c.group_id == fix.group_id]
    return whole if fix.cause is None else [*whole, kinds.c.cause == fix.cause]
