"""A failure group in detail: its causes, the plan that has its letters, and the suggested next step."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bridge.deadletters.db import group_table
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.group_table import count_causes
from bridge.deadletters.inspection.advice import GroupSurroundings, Suggestion, advise_on_group
from bridge.deadletters.inspection.failure_groups import GroupState
from bridge.deadletters.inspection.group_versions import RunningHandlers, read_running_handlers
from bridge.deadletters.inspection.letter_lookup import LetterLookup
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import LetterLine, write_fields
from bridge.handler_routes import Routes
from bridge.settings import Settings


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
        """As JSON."""
        return write_fields(self, "newest") | {"message": self.newest.error_message}


@dataclass(frozen=True)
class GroupCauses:
    """The causes of groups. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def of(self, group_ids: Sequence[int]) -> dict[int, list[GroupCause]]:
        """Return the causes of each group, those with most open letters first."""
        if not group_ids:
            return {}
        with self.database.reading() as connection:
            rows = count_causes(connection, group_ids)
        by_cause: dict[tuple[int, str], list[Any]] = defaultdict(list)
        for row in rows:
            by_cause[row.group_id, row.cause].append(row)
        newest = {key: max(some, key=lambda row: (row.last_at, row.newest)).newest for key, some in by_cause.items()}
        letters = self._letters(newest.values())
        causes: dict[int, list[GroupCause]] = {id_: [] for id_ in group_ids}
        for (group_id, cause), some in by_cause.items():
            # The letter may have been cleaned up since its kind was counted.
            if (letter := letters.get(newest[group_id, cause])) is not None:
                causes[group_id].append(_build_cause(cause, some, letter))
        return {id_: sorted(some, key=lambda each: (-each.open, -each.count, each.id)) for id_, some in causes.items()}

    def _letters(self, ids: Iterable[int]) -> dict[int, LetterLine]:
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        page = LetterLookup(self.database).page(LetterFilter(ids=tuple(wanted)), len(wanted))
        return {each.id: each for each in page.letters}


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
    """Groups with their surroundings.

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

    def of(self, groups: Sequence[GroupState]) -> StandingGroups:
        """Return groups with their surroundings, as far as Redis answers."""
        runs = read_running_handlers(self.settings, self.routes)
        replaying = [each.id for each in groups if each.statuses.get("replaying")]
        with self.database.reading() as connection:
            plans = group_table.find_plans_of_groups(connection, replaying)
            again = group_table.count_died_again(connection, [each.id for each in groups if each.open])
        return StandingGroups(tuple(_build_standing(each, runs, plans, again) for each in groups), runs.trouble)

    def died_again(self, group: GroupState) -> int:
        """Return how many open letters of a group were replayed before."""
        with self.database.reading() as connection:
            return group_table.count_died_again(connection, [group.id]).get(group.id, 0)


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
