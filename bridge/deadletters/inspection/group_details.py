"""A failure group in detail: its causes, the versions in which it failed and those that run, what the handler completed
meanwhile, the plan that has its letters, and the suggested next step.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from bridge.deadletters.db import group_rows, letter_query
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.group_rows import count_causes, rank_causes
from bridge.deadletters.inspection.advice import GroupSurroundings, Suggestion, advise_on_group
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterCount, LetterLine, write_fields
from bridge.errors import LedgerUnavailable
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.breaker_state import CircuitBreakers
from bridge.ledger.delivery_counts import HOURS, MINUTES, CountSeries, read_counts
from bridge.ledger.group_members import GroupMembers
from bridge.settings import Settings

#: Seconds to wait for Redis: after them, a page is shown without the data of Redis.
ANSWER_WITHIN: Final = 2.0


class RunningHandlers(NamedTuple):
    """The handlers and versions of the living workers.

    Attributes:
        versions: by handler, living workers by version; "" for those that report none.
        down: by handler, a dependency whose circuit breaker is open.
        trouble: why this is unknown; "": it is known.
        started: by handler and version, when the first living worker with it started, ms since the epoch.
    """

    versions: Mapping[str, Mapping[str, int]]
    down: Mapping[str, str]
    trouble: str = ""
    started: Mapping[str, Mapping[str, int]] = {}


def read_running_handlers(settings: Settings, routes: Routes) -> RunningHandlers:
    """Return the running handlers from Redis, or the reason why they are unknown."""
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return RunningHandlers({}, {}, "There is no Redis, so the running versions are unknown.")
    try:
        with closing(ledger):
            workers = [*GroupMembers(ledger, "workers").living().values()]
            down = CircuitBreakers(ledger).open_ones(sorted(routes.terms)) if routes.terms else {}
    except LedgerUnavailable as error:
        return RunningHandlers({}, {}, str(error))
    needed = {handler.name: name for name in down for handler in routes if name in handler.needs}
    return RunningHandlers(
        count_workers_by_version(settings.group, workers), needed, started=find_version_starts(settings.group, workers)
    )


def count_workers_by_version(group: str, workers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return, by handler, how many workers of a group have which version (pure).

    Parameters:
        workers: the announcement of each.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in workers:
        if worker.get("group", group) == group:
            versions = worker.get("handler_versions") or {}
            for handler in worker.get("handlers", ()):
                counts[str(handler)][str(versions.get(handler) or "")] += 1
    return {handler: dict(counted) for handler, counted in counts.items()}


def find_version_starts(group: str, workers: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return, by handler and version, when the first of these workers with it started, ms since the epoch (pure).

    Parameters:
        workers: the announcement of each; one without a version is left out.
    """
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    for worker in workers:
        started = worker.get("started")
        if worker.get("group", group) == group and isinstance(started, (int, float)):
            for handler, version in (worker.get("handler_versions") or {}).items():
                by_version = starts[str(handler)]
                if version:
                    by_version[str(version)] = min(
                        int(started * 1000), by_version.get(str(version), int(started * 1000))
                    )
    return dict(starts)


#: Milliseconds.
_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000


class VersionOutcome(NamedTuple):
    """The results of a handler while a version of it ran.

    Attributes:
        since: the start of the counted whole minutes or hours, ms since the epoch, as all times here.
        failed: letters of the group whose last failure was in this version.
        handled: deliveries of the group's topics that the handler has handled, in any version.
        alone: whether all living workers have this version.
    """

    since: int
    failed: LetterCount
    handled: int
    alone: bool

    @property
    def share(self) -> float | None:
        """Return the failures in percent; `None` if other versions ran too, or nothing was handled."""
        ended = self.failed.number + self.handled
        return 100 * self.failed.number / ended if self.alone and self.failed.exact and ended else None


class GroupVersion(NamedTuple):
    """The failures of a group in a version.

    Attributes:
        letters: those that failed last in it; `open` of these are open.
        workers: living workers that have it; `None`: unknown.
        started: when the first of those started; `None`: none, or unknown.
        failed: the first and the last hour in which it failed; `None`: it never failed.
        meanwhile: the handler's results since `started`; `None`: the version does not run, or that is unknown.
    """

    version: str
    letters: int
    open: int
    workers: int | None
    started: int | None
    failed: tuple[int, int] | None
    meanwhile: VersionOutcome | None


@dataclass(frozen=True)
class GroupVersions:
    """The versions of groups. Raises DeskUnavailable if the database does not answer; data that Redis does not give
    is unknown.

    Parameters:
        clock: Unix time.
    """

    settings: Settings
    routes: Routes
    database: Database
    clock: Callable[[], float] = time.time

    def read_versions(self, group: GroupState) -> list[GroupVersion]:
        """Return the versions in which a group has failed, and those that run, in descending order of names."""
        now = self.clock()
        runs = read_running_handlers(self.settings, self.routes)
        has, started = runs.versions.get(group.handler, {}), runs.started.get(group.handler, {})
        series = _read_series(self.settings, group, now) if started else None
        with self.database.reading() as connection:
            failed = group_rows.count_by_version(connection, group.id)
            hours = group_rows.read_hours_by_version(connection, group.id)
        known = None if runs.trouble else 0
        return [
            GroupVersion(
                name,
                *failed.get(name, (0, 0)),
                has.get(name, known),
                started.get(name),
                hours.get(name),
                self._meanwhile(group, name, started.get(name), series, now, alone=set(has) == {name}),
            )
            for name in sorted({*failed, *filter(None, has)}, reverse=True)
        ]

    def _meanwhile(
        self,
        group: GroupState,
        version: str,
        started: int | None,
        series: Iterable[CountSeries] | None,
        now: float,
        *,
        alone: bool,
    ) -> VersionOutcome | None:
        if started is None or series is None:
            return None
        since, handled = count_handled_since(series, started, now)
        filter_ = LetterFilter(groups=(group.id,), versions=(version,), since=since)
        with self.database.reading() as connection:
            return VersionOutcome(since, LetterCount(*letter_query.count_letters(connection, filter_)), handled, alone)


def count_handled_since(series: Iterable[CountSeries], started: int, now: float) -> tuple[int, int]:
    """Return the time from which handled deliveries are counted for a version, and their number (pure).

    The count uses whole minutes of the last hour, else whole hours of the last day. It begins with the first minute or
    hour after the start of the version.

    Parameters:
        started: ms since the epoch.
        now: Unix time, whose minute is the last of the series.
    """
    minute, hour = int(now // 60), int(now // 3_600)
    first = -(-started // _MINUTE)
    if first > minute - MINUTES:
        last, since, unit = minute - first + 1, first * _MINUTE, "minutes"
    else:
        first = max(-(-started // _HOUR), hour - HOURS + 1)
        last, since, unit = hour - first + 1, first * _HOUR, "hours"
    return since, sum(sum(getattr(each, unit)["handled"][-last:]) for each in series) if last > 0 else 0


def _read_series(settings: Settings, group: GroupState, now: float) -> list[CountSeries] | None:
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return None
    try:
        with closing(ledger):
            return [*read_counts(ledger, [(topic, group.handler) for topic in group.topics], now).values()]
    except LedgerUnavailable:
        return None


@dataclass(frozen=True, slots=True)
class GroupCause:
    """The letters of a failure group that have one cause.

    Attributes:
        id: its fingerprint; "unknown": recorded by an old version; "other": beyond the most causes of a group.
        first_at, last_at: when the first and the last of its letters failed, ms since the epoch.
        newest: its newest letter, whose message stands for the cause.
    """

    id: str
    count: int
    open: int
    first_at: int
    last_at: int
    newest: LetterLine

    def to_data(self) -> dict[str, Any]:
        """Return the cause as JSON-compatible data."""
        return write_fields(self, "newest") | {"message": self.newest.error_message}


class MainCauses(NamedTuple):
    """The causes of a group with most open letters.

    Attributes:
        total: the number of all its causes.
    """

    shown: tuple[GroupCause, ...]
    total: int


@dataclass(frozen=True)
class GroupCauses:
    """The causes of groups. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def read_causes(self, group_ids: Sequence[int]) -> dict[int, list[GroupCause]]:
        """Return the causes of each group, those with most open letters first."""
        if not group_ids:
            return {}
        with self.database.reading() as connection:
            rows = count_causes(connection, group_ids)
        return self._build_causes(group_ids, rows)

    def read_main_causes(self, group_ids: Sequence[int], most: int) -> dict[int, MainCauses]:
        """Return the main causes of each group; a group may have 50."""
        if not group_ids:
            return {}
        with self.database.reading() as connection:
            ranked = rank_causes(connection, group_ids)
            chosen = {(id_, name) for id_, names in ranked.items() for name in names[:most]}
            rows = count_causes(connection, [*ranked], {name for _, name in chosen}) if chosen else []
        causes = self._build_causes([*ranked], [row for row in rows if (row.group_id, row.cause) in chosen])
        return {id_: MainCauses(tuple(some), len(ranked[id_])) for id_, some in causes.items() if some}

    def _build_causes(self, group_ids: Sequence[int], rows: Iterable[Any]) -> dict[int, list[GroupCause]]:
        by_cause: dict[tuple[int, str], list[Any]] = defaultdict(list)
        for row in rows:
            by_cause[row.group_id, row.cause].append(row)
        newest = {key: max(some, key=lambda row: (row.last_at, row.newest)).newest for key, some in by_cause.items()}
        letters = self._letters(newest.values())
        causes: dict[int, list[GroupCause]] = {id_: [] for id_ in group_ids}
        for (group_id, cause), some in by_cause.items():
            # Retention may have deleted the letter since its cause was counted.
            if (letter := letters.get(newest[group_id, cause])) is not None:
                causes[group_id].append(_build_cause(cause, some, letter))
        return {id_: sorted(some, key=lambda each: (-each.open, -each.count, each.id)) for id_, some in causes.items()}

    def _letters(self, ids: Iterable[int]) -> dict[int, LetterLine]:
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        page = LetterLookup(self.database).page(LetterFilter(ids=tuple(wanted)), len(wanted))
        return {letter.id: letter for letter in page.letters}


def replace_newest_letters(causes: Sequence[GroupCause], letters: Sequence[LetterLine]) -> list[GroupCause]:
    """Return the causes with these letters as their newest, for example masked ones."""
    return [replace(cause, newest=letter) for cause, letter in zip(causes, letters, strict=True)]


def _build_cause(id_: str, rows: Sequence[Any], newest: LetterLine) -> GroupCause:
    return GroupCause(
        id=id_,
        count=sum(int(row.count) for row in rows),
        open=sum(int(row.count) for row in rows if row.status == "open"),
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
        newest=newest,
    )


class GroupStanding(NamedTuple):
    """A group with its surroundings and a suggestion."""

    group: GroupState
    around: GroupSurroundings
    next: Suggestion


class StandingGroups(NamedTuple):
    """The groups with their surroundings.

    Attributes:
        trouble: why the running versions are unknown; "": they are known.
    """

    groups: tuple[GroupStanding, ...]
    trouble: str


@dataclass(frozen=True)
class GroupDetails:
    """The details of groups. Raises DeskUnavailable if the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def read_standings(self, groups: Sequence[GroupState]) -> StandingGroups:
        """Return groups with their surroundings, as far as Redis answers."""
        runs = read_running_handlers(self.settings, self.routes)
        replaying = [group.id for group in groups if group.statuses.get("replaying")]
        with self.database.reading() as connection:
            plans = group_rows.find_plans_of_groups(connection, replaying)
            again = group_rows.count_died_again(connection, [group.id for group in groups if group.open])
        return StandingGroups(tuple(_build_standing(group, runs, plans, again) for group in groups), runs.trouble)

    def died_again(self, group: GroupState) -> int:
        """Return how many open letters of a group were replayed before."""
        with self.database.reading() as connection:
            return group_rows.count_died_again(connection, [group.id]).get(group.id, 0)


def _build_standing(
    group: GroupState, runs: RunningHandlers, plans: dict[int, int], again: dict[int, int]
) -> GroupStanding:
    around = GroupSurroundings(
        plan=plans.get(group.id),
        running=runs.versions.get(group.handler, {}),
        down=runs.down.get(group.handler, ""),
        died_again=group.id in again,
    )
    return GroupStanding(group, around, advise_on_group(group, around))
