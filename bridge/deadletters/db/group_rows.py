"""Failure groups: found, ranked, counted by cause and version, and marked as fixed.

They are read from kinds and tallies, never by a scan of the letters.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    Table,
    UnaryExpression,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)

from bridge.deadletters.db import row_scope
from bridge.deadletters.db.filter_sql import Condition, build_kind_conditions, is_one_of
from bridge.deadletters.db.kind_rows import HOUR_MS
from bridge.deadletters.db.table_definitions import cause_fixes, groups, hours, items, kinds, letters, tallies
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus


class GroupRows(NamedTuple):
    """The rows about some groups.

    Attributes:
        rows: of `groups`.
        statuses: by group, how many letters have each status.
        kinds: by group, the versions, reasons, topics and origins of its letters.
        hours: by group, failures by hour.
        fixes: by group, of `cause_fixes`.
        times: by group that also has letters outside the reader's scope, its first and last hour within it.
    """

    rows: Sequence[Row[Any]]
    statuses: dict[int, dict[str, int]]
    kinds: dict[int, list[Row[Any]]]
    hours: dict[int, dict[int, int]]
    fixes: dict[int, list[Row[Any]]]
    times: dict[int, tuple[int, int]]


def find_groups(connection: Connection, filter_: LetterFilter, since_hour: int) -> GroupRows:
    """Return the groups that have letters of a filter, with the hours since `since_hour`."""
    rows = connection.execute(select(groups).where(*build_group_conditions(filter_))).all()
    ids = [row.id for row in rows]
    its, its_fixes = is_one_of(kinds.c.group_id, ids), is_one_of(cause_fixes.c.group_id, ids)
    names = ("group_id", "version", "reason", "topic", "origin")
    return GroupRows(
        rows,
        statuses=_sum_by_group(connection, tallies, tallies.c.status, its, tallies.c.count > 0),
        kinds=_read_by_group(connection, select(*(kinds.c[name] for name in names)).where(its)),
        hours=_sum_by_group(connection, hours, hours.c.hour, its, hours.c.hour >= since_hour),
        fixes=_read_by_group(connection, select(cause_fixes).where(its_fixes).order_by(cause_fixes.c.cause)),
        times=read_shared_times(connection, ids),
    )


def read_shared_times(connection: Connection, group_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the first and the last hour (ms since the epoch) of those of these groups that also have letters outside
    the connection's scope: their rows have the times of all letters.
    """
    if not (shared := row_scope.find_shared_groups(connection, group_ids)):
        return {}
    ends = select(kinds.c.group_id, func.min(hours.c.hour), func.max(hours.c.hour))
    ends = ends.join(hours, hours.c.kind_id == kinds.c.id).where(is_one_of(kinds.c.group_id, shared))
    rows = connection.execute(ends.group_by(kinds.c.group_id))
    return dict.fromkeys(shared, (0, 0)) | {
        id_: (int(first) * HOUR_MS, int(last) * HOUR_MS) for id_, first, last in rows
    }


def build_group_conditions(filter_: LetterFilter) -> Iterator[Condition]:
    """Yield the conditions on groups that have letters of a filter."""
    yield groups.c.id.in_(_select_group_ids(filter_))
    if filter_.since is not None:
        yield groups.c.last_at >= filter_.since


class GroupMarks(NamedTuple):
    """The marks of a group or cause as the user saw them when deciding."""

    fixed_in: str | None
    fixed_at: int | None
    regressed_at: int | None


def mark_fixed(
    connection: Connection, id_: int, version: str, at: int, by: str, seen: GroupMarks | None = None
) -> bool:
    """Mark a group as fixed in a version; return whether the group exists with the marks that were seen."""
    return _change_marks(connection, id_, seen, fixed_in=version, fixed_at=at, fixed_by=by)


def unmark_fixed(connection: Connection, id_: int, seen: GroupMarks | None = None) -> bool:
    """Remove the mark; return whether the group exists with the marks that were seen."""
    return _change_marks(connection, id_, seen, fixed_in=None, fixed_at=None, fixed_by=None)


def has_cause(connection: Connection, id_: int, cause: str) -> bool:
    """Return whether a group has letters of a cause, or had."""
    query = select(kinds.c.id).where(kinds.c.group_id == id_, kinds.c.cause == cause).limit(1)
    return connection.execute(query).first() is not None


def mark_cause(
    connection: Connection, id_: int, cause: str, fixed: tuple[str, int, str] | None, seen: GroupMarks | None = None
) -> bool:
    """Mark a cause as fixed, or remove the mark; return whether it has the marks that were seen.

    Parameters:
        fixed: version, time and person; `None`: remove the mark.
    """
    # The lock on the group serialises two people who mark the cause first, and a recorder.
    connection.execute(select(groups.c.id).where(groups.c.id == id_).with_for_update())
    its = (cause_fixes.c.group_id == id_, cause_fixes.c.cause == cause)
    columns = (cause_fixes.c[name] for name in GroupMarks._fields)
    row = connection.execute(select(*columns).where(*its)).first()
    if seen is not None and seen != (GroupMarks(*row) if row else GroupMarks(None, None, None)):
        return False
    connection.execute(delete(cause_fixes).where(*its))
    if fixed is not None:
        values = dict(zip(("fixed_in", "fixed_at", "fixed_by"), fixed, strict=True))
        connection.execute(insert(cause_fixes).values(group_id=id_, cause=cause, **values))
    return True


def _change_marks(connection: Connection, id_: int, seen: GroupMarks | None, **values: Any) -> bool:
    changed = update(groups).where(groups.c.id == id_).values(**values, fixed_plan=None, regressed_at=None)
    if seen is not None:
        changed = changed.where(*(groups.c[name].is_not_distinct_from(each) for name, each in seen._asdict().items()))
    return connection.execute(changed).rowcount == 1


def _select_group_ids(filter_: LetterFilter) -> Select[tuple[int]]:
    found = select(kinds.c.group_id).join(tallies, tallies.c.kind_id == kinds.c.id)
    found = found.where(tallies.c.count > 0, *build_kind_conditions(filter_))
    return found.where(tallies.c.status.in_(filter_.statuses)) if filter_.statuses else found


def _sum_by_group(
    connection: Connection, table: Table, column: Column[Any], *conditions: Condition
) -> dict[int, dict[Any, int]]:
    """Return, by group, the sum of a table's counts for each value of a column."""
    counted = select(kinds.c.group_id, column, func.sum(table.c.count)).join(table, table.c.kind_id == kinds.c.id)
    found: dict[int, dict[Any, int]] = defaultdict(dict)
    for group, value, count in connection.execute(counted.where(*conditions).group_by(kinds.c.group_id, column)):
        found[group][value] = int(count)
    return found


def _read_by_group(connection: Connection, asked: Select[Any]) -> dict[int, list[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(asked):
        found[row.group_id].append(row)
    return found


#: The columns of a group that an order or a search needs.
_RANKED_COLUMNS: Final = ("id", "handler", "error_class", "place", "first_at", "last_at")


def read_ranking_rows(connection: Connection, filter_: LetterFilter) -> Sequence[Row[Any]]:
    """Return, for each group that has letters of a filter, its name, and how many letters it has and has open."""
    opened = func.sum(case((tallies.c.status == LetterStatus.OPEN, tallies.c.count), else_=0)).label("open")
    total = func.sum(tallies.c.count).label("letters")
    counted = select(kinds.c.group_id, opened, total).join(tallies, tallies.c.kind_id == kinds.c.id)
    counts = counted.group_by(kinds.c.group_id).subquery()
    columns: list[ColumnElement[Any]] = [*(groups.c[name] for name in _RANKED_COLUMNS)]
    marked = (_marked("fixed_in").label("is_fixed"), _marked("regressed_at").label("came_back"))
    columns += [*marked, counts.c.open, counts.c.letters]
    found = select(*columns)
    found = found.join(counts, counts.c.group_id == groups.c.id).where(*build_group_conditions(filter_))
    return connection.execute(found).all()


def find_failing_groups(connection: Connection, since_hour: int, least: int) -> list[int]:
    """Return the groups with at least `least` failures in one hour since `since_hour`, by the index of hours."""
    failed = func.sum(hours.c.count)
    found = select(kinds.c.group_id).join(hours, hours.c.kind_id == kinds.c.id).where(hours.c.hour >= since_hour)
    found = found.group_by(kinds.c.group_id, hours.c.hour).having(failed >= least).distinct()
    return [*connection.execute(found).scalars()]


def find_regressed_groups(connection: Connection) -> list[int]:
    """Return the groups that failed again in the version in which they, or a cause of theirs, were fixed."""
    return [*connection.execute(select(groups.c.id).where(_marked("regressed_at"))).scalars()]


def _marked(name: str) -> ColumnElement[bool]:
    """Return whether a group, or a cause of it, has a mark."""
    of_a_cause = exists().where(cause_fixes.c.group_id == groups.c.id, cause_fixes.c[name].is_not(None))
    return or_(groups.c[name].is_not(None), of_a_cause)


#: Most groups that a group is compared with.
_MOST_BESIDE: Final = 200


def find_plans_of_groups(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """Return, by group, a plan that has letters of it in flight."""
    its = select(letters.c.plan_id).where(_is_of_group(), letters.c.status == LetterStatus.REPLAYING).limit(1)
    plan = its.correlate(groups).scalar_subquery()
    query = select(groups.c.id, plan).where(is_one_of(groups.c.id, group_ids))
    return {group: plan for group, plan in connection.execute(query) if plan is not None}


def count_died_again(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """Return, by group, how many open letters have died more than once, by a partial index of these."""
    # A literal: a partial index is not used for a parameter.
    again = (letters.c.failures > literal_column("1"), letters.c.status == LetterStatus.OPEN)
    its = select(func.count(letters.c.id)).where(_is_of_group(), *again).correlate(groups).scalar_subquery()
    query = select(groups.c.id, its).where(is_one_of(groups.c.id, group_ids))
    return {group: int(count) for group, count in connection.execute(query) if count}


def count_by_version(connection: Connection, group_id: int) -> dict[str, tuple[int, int]]:
    """Return, by version, how many letters of a group failed last in it, and how many of these are open."""
    is_open = case((tallies.c.status == LetterStatus.OPEN, tallies.c.count), else_=0)
    counted = (
        select(kinds.c.version, func.sum(tallies.c.count), func.sum(is_open))
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(kinds.c.group_id == group_id, tallies.c.count > 0)
        .group_by(kinds.c.version)
    )
    return {version: (int(count), int(still)) for version, count, still in connection.execute(counted)}


def read_hours_by_version(connection: Connection, group_id: int) -> dict[str, tuple[int, int]]:
    """Return, by version, the first and the last hour in which a group failed (ms since the epoch)."""
    ends = select(kinds.c.version, func.min(hours.c.hour), func.max(hours.c.hour)).join(
        hours, hours.c.kind_id == kinds.c.id
    )
    rows = connection.execute(ends.where(kinds.c.group_id == group_id).group_by(kinds.c.version))
    return {version: (int(first) * HOUR_MS, int(last) * HOUR_MS) for version, first, last in rows}


def find_groups_beside(connection: Connection, group_id: int) -> list[int]:
    """Return the newest other groups that have letters of a group's topics; a limited number."""
    topics = select(kinds.c.topic).where(kinds.c.group_id == group_id)
    found = select(kinds.c.group_id).where(kinds.c.topic.in_(topics), kinds.c.group_id != group_id).distinct()
    return [*connection.execute(found.order_by(kinds.c.group_id.desc()).limit(_MOST_BESIDE)).scalars()]


def _is_of_group() -> ColumnElement[bool]:
    """Return the condition that a letter is of the outer query's group: of one of its kinds, which are few."""
    its = select(kinds.c.id).where(kinds.c.group_id == groups.c.id).correlate(groups)
    return letters.c.kind_id.in_(its)


def rank_causes(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the causes of each group that has letters, those with most open letters first."""
    opened = func.sum(case((tallies.c.status == LetterStatus.OPEN, tallies.c.count), else_=0)).label("opened")
    counted = select(kinds.c.group_id, kinds.c.cause, opened, func.sum(tallies.c.count).label("letters"))
    counted = counted.join(tallies, tallies.c.kind_id == kinds.c.id).group_by(kinds.c.group_id, kinds.c.cause)
    rows = connection.execute(counted.where(is_one_of(kinds.c.group_id, group_ids), tallies.c.count > 0)).all()
    found: dict[int, list[str]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (-row.opened, -row.letters, row.cause)):
        found[row.group_id].append(row.cause)
    return found


def count_causes(connection: Connection, group_ids: Sequence[int], causes: Collection[str] | None = None) -> list[Any]:
    """Return a row for each kind and status of these groups that has letters.

    Parameters:
        causes: the causes to count; `None`: all.

    Returns:
        `group_id`, `cause`, `status`, `count`, `first_at`, `last_at`, and `newest`, the id of the newest letter.
    """
    newest, oldest = letters.c.failed_at.desc(), letters.c.failed_at.asc()
    query = (
        select(
            *(kinds.c.group_id, kinds.c.cause, tallies.c.status, tallies.c.count),
            _select_index_end(letters.c.failed_at, oldest).label("first_at"),
            _select_index_end(letters.c.failed_at, newest).label("last_at"),
            _select_index_end(letters.c.id, newest, letters.c.id.desc()).label("newest"),
        )
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(is_one_of(kinds.c.group_id, group_ids), tallies.c.count > 0)
    )
    if causes is not None:
        query = query.where(kinds.c.cause.in_(causes))
    return [row for row in connection.execute(query) if row.newest is not None]


def _select_index_end(column: Column[Any], *order: UnaryExpression[Any]) -> ScalarSelect[Any]:
    """Return the query of a column of the letter at one end of the index of a kind and status."""
    its = letters.c.kind_id == tallies.c.kind_id, letters.c.status == tallies.c.status
    return select(column).where(*its).order_by(*order).limit(1).scalar_subquery()


class GroupFix(NamedTuple):
    """A group or cause that is marked as fixed.

    Attributes:
        cause: its id; `None`: the whole group.
        fixed_at: ms since the epoch.
        fixed_by: who marked it; `None`: not known.
        plan_id: the last plan that replayed its letters.
    """

    group_id: int
    cause: str | None
    handler: str
    fixed_in: str
    fixed_at: int
    fixed_by: str | None
    plan_id: int | None

    @property
    def name(self) -> str:
        """`group 7`, or `cause 1f0c9a… of group 7`."""
        return f"group {self.group_id}" if self.cause is None else f"cause {self.cause} of group {self.group_id}"


def read_fixes(connection: Connection) -> list[GroupFix]:
    """Return the groups and causes that are marked as fixed and have not failed again."""
    names = ("fixed_in", "fixed_at", "fixed_by", "fixed_plan")
    whole = select(groups.c.id, null().label("cause"), groups.c.handler, *(groups.c[name] for name in names))
    parts = select(groups.c.id, cause_fixes.c.cause, groups.c.handler, *(cause_fixes.c[name] for name in names))
    parts = parts.join(groups, groups.c.id == cause_fixes.c.group_id)
    both = union_all(
        whole.where(groups.c.fixed_in.is_not(None)), parts.where(cause_fixes.c.fixed_in.is_not(None))
    ).subquery()
    return [GroupFix(*row) for row in connection.execute(select(both).order_by(both.c.id, both.c.cause))]


def count_open_by_version(connection: Connection, fix: GroupFix) -> dict[str, int]:
    """Return how many open letters a group or cause has, by the version in which they failed."""
    query = (
        select(kinds.c.version, func.sum(tallies.c.count))
        .join(tallies, tallies.c.kind_id == kinds.c.id)
        .where(*_of(fix), tallies.c.status == LetterStatus.OPEN, tallies.c.count > 0)
        .group_by(kinds.c.version)
    )
    return {version: int(count) for version, count in connection.execute(query)}


def find_versions_failed_since(connection: Connection, fix: GroupFix) -> list[str]:
    """Return the versions in which letters of a group or cause failed since it was marked."""
    # All statuses are listed, so that the index of kind, status and time answers.
    later = exists().where(
        letters.c.kind_id == kinds.c.id, letters.c.status.in_(list(LetterStatus)), letters.c.failed_at >= fix.fixed_at
    )
    return list(connection.execute(select(kinds.c.version).where(*_of(fix), later)).scalars())


def find_versions_dead_again(connection: Connection, plan_id: int) -> list[str]:
    """Return the versions in which letters of a plan died again, in whatever group."""
    query = (
        select(kinds.c.version)
        .join(letters, letters.c.kind_id == kinds.c.id)
        .join(items, items.c.letter_id == letters.c.id)
        .where(items.c.plan_id == plan_id, items.c.state == "dead")
        .distinct()
    )
    return list(connection.execute(query).scalars())


def hold_fix(connection: Connection, fix: GroupFix) -> bool:
    """Return whether a mark is as it was read; if so, lock it until the transaction ends."""
    # Marking a cause locks its group: before the first mark there is no other row to lock.
    connection.execute(select(groups.c.id).where(groups.c.id == fix.group_id).with_for_update())
    table = _table(fix)
    unchanged = (
        table.c.fixed_in == fix.fixed_in,
        table.c.fixed_at == fix.fixed_at,
        table.c.fixed_plan.is_not_distinct_from(fix.plan_id),
    )
    return connection.execute(select(table.c.fixed_at).where(*_its(fix), *unchanged)).first() is not None


def note_fix_plan(connection: Connection, fix: GroupFix, plan_id: int) -> None:
    """Note the plan that replays the letters."""
    connection.execute(update(_table(fix)).where(*_its(fix)).values(fixed_plan=plan_id))


def note_regression(connection: Connection, fix: GroupFix, at: int) -> None:
    """Remove the mark, because a letter failed in that version, and note when that was seen."""
    connection.execute(update(_table(fix)).where(*_its(fix)).values(fixed_in=None, regressed_at=at))


def _table(fix: GroupFix) -> Table:
    return groups if fix.cause is None else cause_fixes


def _its(fix: GroupFix) -> list[ColumnElement[bool]]:
    """Return the condition for the row that has the mark."""
    if fix.cause is None:
        return [groups.c.id == fix.group_id]
    return [cause_fixes.c.group_id == fix.group_id, cause_fixes.c.cause == fix.cause]


def _of(fix: GroupFix) -> list[ColumnElement[bool]]:
    """Return the condition for the kinds of its letters."""
    whole = [kinds.c.group_id == fix.group_id]
    return whole if fix.cause is None else [*whole, kinds.c.cause == fix.cause]
