"""Failure groups: listed in an order, with their growth, and marked as fixed in a version of the handlers' code."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import audit_rows, group_rows, row_scope
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.failure_growth import (
    HOUR,
    LEAST,
    USUAL,
    WEEK,
    FailureGrowth,
    FailureRate,
    measure_growth,
    measure_rate,
)
from bridge.deadletters.model.letter_filter import ALL_LETTERS, LetterFilter
from bridge.deadletters.model.letter_view import format_moment, write_fields
from bridge.errors import FilterFault, GroupChanged, NoSuchGroup
from bridge.jobs.group_facts import format_utc


class GroupOrder(StrEnum):
    """An order of the list of groups."""

    NEED = "need"
    """The most urgent first: growing groups, regressions, then the most open letters."""
    NEWEST = "newest"
    """The last seen first."""
    OPEN = "open"
    COUNT = "count"
    """The most letters first, of any status."""
    FIRST = "first"
    """The latest first failure first: what is new."""
    NAME = "name"

    @property
    def ascends(self) -> bool:
        """Return whether the smallest key comes first."""
        return self is GroupOrder.NAME


class RankedGroup(NamedTuple):
    """A group with its sort keys.

    Attributes:
        grows: failures since it grows; 0: it does not grow, or no letter of it is open.
        came_back: whether it failed again in the version in which it was fixed.
        letters: its letters of any status.
        first_at, last_at: ms since the epoch.
    """

    id: int
    handler: str
    error_class: str
    place: str
    open: int
    letters: int
    first_at: int
    last_at: int
    is_fixed: bool
    came_back: bool
    grows: int

    def by(self, order: GroupOrder) -> tuple[int | str, ...]:
        """Return the unique sort key for an order."""
        if order is GroupOrder.NAME:
            return self.error_class.rpartition(".")[2].casefold(), self.handler, self.place, self.id
        if order is GroupOrder.NEWEST:
            return self.last_at, self.id
        if order is GroupOrder.FIRST:
            return self.first_at, self.id
        if order is GroupOrder.OPEN:
            return self.open, self.last_at, self.id
        if order is GroupOrder.COUNT:
            return self.letters, self.last_at, self.id
        return self.grows, self.came_back and self.open > 0, self.open, self.last_at, self.id


@dataclass(frozen=True, slots=True)
class FixedCause:
    """A cause of a group that is marked as fixed in a version, or failed in it again."""

    cause: str
    fixed_in: str | None
    fixed_at: int | None
    fixed_by: str | None
    fixed_plan: int | None
    regressed_at: int | None
    #: A cause has no causes: templates show a group and a cause by one macro.
    cause_fixes: tuple[()] = ()

    @property
    def came_back(self) -> bool:
        """Return whether it failed in the version in which it was fixed."""
        return self.regressed_at is not None

    def to_data(self) -> dict[str, Any]:
        """Return the marks of the cause as JSON-compatible data."""
        return write_fields(self, "cause_fixes")


@dataclass(frozen=True, slots=True)
class GroupState:
    """A failure group.

    Attributes:
        place: the location that raised it: `orders/bank.py:pay`.
        statuses: how many of its letters have each status, without what is 0.
        first_at, last_at: of its failures, ms since the epoch, as all times here.
        hours: its failures in each of the last 24 hours, the current hour last.
        growth: `None`: it does not grow.
        fixed_in: the version in which a person marked it as fixed.
        regressed_at: when it failed in that version again.
        cause_fixes: its causes that are marked, or failed again.
    """

    id: int
    handler: str
    error_class: str
    place: str
    statuses: dict[str, int]
    reasons: tuple[str, ...]
    topics: tuple[str, ...]
    versions: tuple[str, ...]
    origins: tuple[str, ...]
    first_at: int
    last_at: int
    hours: tuple[int, ...]
    rate: FailureRate
    growth: FailureGrowth | None
    fixed_in: str | None
    fixed_at: int | None
    fixed_by: str | None
    fixed_plan: int | None
    regressed_at: int | None
    cause_fixes: tuple[FixedCause, ...] = ()

    @property
    def came_back(self) -> bool:
        """Return whether it, or a cause of it, failed in the version in which it was fixed."""
        return self.regressed_at is not None or any(fix.regressed_at is not None for fix in self.cause_fixes)

    def fix_of(self, cause: str) -> FixedCause:
        """Return the marks of a cause."""
        found = next((fix for fix in self.cause_fixes if fix.cause == cause), None)
        return found or FixedCause(cause, None, None, None, None, None)

    @property
    def count(self) -> int:
        """Return the number of its letters, of any status."""
        return sum(self.statuses.values())

    @property
    def open(self) -> int:
        """Return the number of its open letters."""
        return self.statuses.get("open", 0)

    def to_data(self) -> dict[str, Any]:
        """Return the group as JSON-compatible data."""
        return write_fields(self, "hours", "rate", "growth", place="where") | {
            "count": self.count,
            "open": self.open,
            "rate_day": round(self.rate.day, 2),
            "rate_week": round(self.rate.week, 2),
            "growing": self.growth is not None,
            "growing_since": format_moment(self.growth.since) if self.growth else None,
        }


@dataclass(frozen=True)
class FailureGroups:
    """The failure groups. Every method raises DeskUnavailable if the database does not answer."""

    database: Database
    clock: Callable[[], float] = time.time

    def all(self, filter_: LetterFilter = ALL_LETTERS, order: GroupOrder = GroupOrder.NEED) -> list[GroupState]:
        """Return the groups that have letters of a filter.

        Parameters:
            filter_: by handler, topic, exception, reason, version, origin, consumer group, status, id of the group; and
                by `since`, failed then or later.

        Raises:
            FilterFault: it has a field that only letters have: ids, text, key, headers, until, plans, attempts or
                dying again.
        """
        _require_group_filter(filter_)
        with self.database.reading() as connection:
            found = self._found(connection, filter_)
        return sorted(found, key=lambda each: _rank_group(each).by(order), reverse=not order.ascends)

    def ranked(self, filter_: LetterFilter = ALL_LETTERS, order: GroupOrder = GroupOrder.NEED) -> list[RankedGroup]:
        """Return the sort keys of the same groups in the same order; `of` returns the groups of a page.

        Raises:
            FilterFault: as `all`.
        """
        _require_group_filter(filter_)
        with self.database.reading() as connection:
            rows = group_rows.read_ranking_rows(connection, filter_)
            times = group_rows.read_shared_times(connection, [row.id for row in rows])
            grow = (
                {each.id: _rank_group(each).grows for each in self._growing(connection)}
                if order is GroupOrder.NEED
                else {}
            )
        ranked = (_build_ranked_row(row, grow.get(row.id, 0), times) for row in rows)
        return sorted(ranked, key=lambda each: each.by(order), reverse=not order.ascends)

    def read_groups(self, ids: Sequence[int]) -> list[GroupState]:
        """Return groups by id, in this order, without those that have no letters any more."""
        with self.database.reading() as connection:
            found = {each.id: each for each in self._of(connection, ids)}
        return [found[id_] for id_ in ids if id_ in found]

    def urgent(self) -> list[GroupState]:
        """Return the groups with open letters that grow, or have a regression; the most urgent first.

        Only groups that failed lately or again are read, however many groups there are.
        """
        with self.database.reading() as connection:
            again = self._of(connection, group_rows.find_regressed_groups(connection))
            found = {each.id: each for each in (*again, *self._growing(connection)) if each.open}
        return sorted(found.values(), key=lambda each: _rank_group(each).by(GroupOrder.NEED), reverse=True)

    def one(self, id_: int) -> GroupState:
        """Return a group.

        Raises:
            NoSuchGroup: there is no such group, or all its letters were cleaned up.
        """
        with self.database.reading() as connection:
            return self._one(connection, id_)

    def fixed(
        self, id_: int, version: str, by: str, seen: GroupState | None = None, *, cause: str | None = None
    ) -> GroupState:
        """Mark a group as fixed in a version of the handlers' code.

        Parameters:
            seen: the group as the user saw it; `None`: any state.
            cause: the cause to mark alone.

        Raises:
            FilterFault: the version is invalid.
            NoSuchGroup: there is no such group, or it has no such cause.
            GroupChanged: its mark has changed, or it has failed again, since it was seen.
        """
        _require_version(version)
        at = int(self.clock() * 1000)
        with self.database.writing() as connection:
            self._require_markable(connection, id_)
            if cause is not None:
                self._mark_cause(connection, id_, cause, (version, at, by), seen)
            elif not group_rows.mark_fixed(connection, id_, version, at, by, _read_marks(seen)):
                raise explain_group_change(self._one(connection, id_))
            said = f"in {version}" if cause is None else f"cause {cause} in {version}"
            audit_rows.write_entry(connection, at, by, "fixed", said, group_id=id_)
            return self._one(connection, id_)

    def fixed_together(self, seen: Sequence[GroupState], version: str, by: str) -> None:
        """Mark groups as fixed in one version, all of them or none.

        Parameters:
            seen: the groups as the user saw them.

        Raises:
            FilterFault, NoSuchGroup, GroupChanged: as `fixed`.
        """
        _require_version(version)
        at = int(self.clock() * 1000)
        with self.database.writing() as connection:
            # In one order for everybody: two people who mark the same groups do not wait for each other for ever.
            for group in sorted(seen, key=lambda each: each.id):
                self._require_markable(connection, group.id)
                if not group_rows.mark_fixed(connection, group.id, version, at, by, _read_marks(group)):
                    now = self._one(connection, group.id)
                    raise GroupChanged(f"Group {now.id}: {explain_group_change(now)}")
                audit_rows.write_entry(connection, at, by, "fixed", f"in {version}", group_id=group.id)

    def not_fixed(self, id_: int, by: str, seen: GroupState | None = None, *, cause: str | None = None) -> GroupState:
        """Remove the mark of a group or a cause.

        Parameters:
            seen, cause: as `fixed`.

        Raises:
            NoSuchGroup, GroupChanged: as `fixed`.
        """
        with self.database.writing() as connection:
            self._require_markable(connection, id_)
            if cause is not None:
                self._mark_cause(connection, id_, cause, None, seen)
            elif not group_rows.unmark_fixed(connection, id_, _read_marks(seen)):
                raise explain_group_change(self._one(connection, id_))
            said = "" if cause is None else f"cause {cause}"
            audit_rows.write_entry(connection, int(self.clock() * 1000), by, "not fixed", said, group_id=id_)
            return self._one(connection, id_)

    def _require_markable(self, connection: Any, id_: int) -> None:
        self._one(connection, id_)
        row_scope.require_own_group(connection, id_)

    def _mark_cause(
        self, connection: Any, id_: int, cause: str, fixed: tuple[str, int, str] | None, seen: GroupState | None
    ) -> None:
        if not group_rows.has_cause(connection, id_, cause):
            self._one(connection, id_)
            raise NoSuchGroup(f"Group {id_} has no cause {cause}: see bridge deadletters groups --group {id_}.")
        marks = None if seen is None else _read_marks(seen.fix_of(cause))
        if not group_rows.mark_cause(connection, id_, cause, fixed, marks):
            raise explain_group_change(self._one(connection, id_).fix_of(cause))

    def _one(self, connection: Any, id_: int) -> GroupState:
        found = self._found(connection, LetterFilter(groups=(id_,)))
        if not found:
            raise NoSuchGroup(
                f"There is no group {id_}: it was never there, or its letters were cleaned up after their end."
            )
        return found[0]

    def _growing(self, connection: Any) -> list[GroupState]:
        """Return the growing groups, which failed often in this hour or in the one before."""
        failing = group_rows.find_failing_groups(connection, int(self.clock() * 1000) // HOUR - 1, LEAST)
        return [each for each in self._of(connection, failing) if each.growth]

    def _of(self, connection: Any, ids: Sequence[int]) -> list[GroupState]:
        return self._found(connection, LetterFilter(groups=tuple(ids))) if ids else []

    def _found(self, connection: Any, filter_: LetterFilter) -> list[GroupState]:
        now = int(self.clock() * 1000)
        found = group_rows.find_groups(connection, filter_, now // HOUR - WEEK)
        return [_build_group_state(row, found, now) for row in found.rows]


def _require_version(version: str) -> None:
    if not version.strip():
        raise FilterFault("In which version is it fixed? Name it as workers report theirs.")


def _read_marks(seen: GroupState | FixedCause | None) -> group_rows.GroupMarks | None:
    return None if seen is None else group_rows.GroupMarks(seen.fixed_in, seen.fixed_at, seen.regressed_at)


def explain_group_change(group: GroupState | FixedCause) -> GroupChanged:
    """Return the error for a group or cause that has changed since it was seen."""
    if group.fixed_in is None or group.fixed_at is None:
        return GroupChanged("It is not marked as fixed any more.")
    at = format_utc(group.fixed_at / 1000)
    return GroupChanged(f"{group.fixed_by} has marked it as fixed in {group.fixed_in} at {at}.")


#: The columns of a group's row, and those of a mark, which a cause has too.
_OWN_COLUMNS: Final = ("id", "handler", "error_class", "place")
_MARK_COLUMNS: Final = ("fixed_in", "fixed_at", "fixed_by", "fixed_plan", "regressed_at")


def _build_group_state(row: Any, found: group_rows.GroupRows, now: int) -> GroupState:
    kinds, hours = found.kinds[row.id], found.hours.get(row.id, {})
    own = {name: getattr(row, name) for name in (*_OWN_COLUMNS, *_MARK_COLUMNS)}
    first_at, last_at = found.times.get(row.id, (row.first_at, row.last_at))
    return GroupState(
        **own,
        first_at=first_at,
        last_at=last_at,
        statuses=found.statuses.get(row.id, {}),
        reasons=_list_names(kind.reason for kind in kinds),
        topics=_list_names(kind.topic for kind in kinds),
        versions=_list_names(kind.version for kind in kinds),
        origins=_list_names(kind.origin for kind in kinds),
        hours=tuple(hours.get(hour, 0) for hour in range(now // HOUR - USUAL + 1, now // HOUR + 1)),
        rate=measure_rate(hours, now),
        growth=measure_growth(hours, now, first_at),
        cause_fixes=tuple(
            FixedCause(fix.cause, *(getattr(fix, name) for name in _MARK_COLUMNS))
            for fix in found.fixes.get(row.id, ())
        ),
    )


def _rank_group(group: GroupState) -> RankedGroup:
    grows = group.growth.failures if group.growth and group.open else 0
    fixed = group.fixed_in is not None or any(fix.fixed_in is not None for fix in group.cause_fixes)
    own = (group.id, group.handler, group.error_class, group.place)
    times = (group.first_at, group.last_at)
    return RankedGroup(*own, group.open, group.count, *times, fixed, group.came_back, grows)


def _build_ranked_row(row: Any, grows: int, times: Mapping[int, tuple[int, int]]) -> RankedGroup:
    fixed, again = bool(row.is_fixed), bool(row.came_back)
    own = (row.id, row.handler, row.error_class, row.place)
    first_at, last_at = times.get(row.id, (row.first_at, row.last_at))
    return RankedGroup(*own, int(row.open), int(row.letters), first_at, last_at, fixed, again, grows)


def _require_group_filter(filter_: LetterFilter) -> None:
    if filter_.ids or filter_.words or filter_.key is not None or filter_.until is not None or filter_.of_history:
        raise FilterFault(
            "Groups are not found by ids, text, key, headers, value, until, plan, attempts or died again: these are of "
            "single letters (list). A group of that number: --group."
        )


def _list_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name}))
