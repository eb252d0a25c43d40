"""The causes of failure groups: what `replay`, `discard` and lists take with `--cause`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.questions.letters import Letters
from bridge.deadletters.questions.shown import Listed, moment
from bridge.deadletters.store.cause_tallies import count_causes
from bridge.deadletters.store.database import Database


@dataclass(frozen=True, slots=True)
class GroupCause:
    """The letters of a failure group that have one cause.

    Attributes:
        id: `bridge.deadletters.letters.fingerprint`; "unknown": recorded before causes were; "other": see `Ids`.
        first_at, last_at: when the first and the last of its letters failed, ms since the epoch.
        newest: its newest letter, whose message stands for the cause.
    """

    id: str
    count: int
    open: int
    first_at: int
    last_at: int
    newest: Listed

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "message": self.newest.error_message,
            "count": self.count,
            "open": self.open,
            "first_at": moment(self.first_at),
            "last_at": moment(self.last_at),
        }


@dataclass(frozen=True)
class GroupCauses:
    """Every method raises DeskUnavailable where the database does not answer."""

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
            # A letter may have been cleaned up since its kind was counted.
            if (letter := letters.get(newest[group_id, cause])) is not None:
                causes[group_id].append(_cause(cause, some, letter))
        return {id_: sorted(some, key=lambda each: (-each.open, -each.count, each.id)) for id_, some in causes.items()}

    def _letters(self, ids: Iterable[int]) -> dict[int, Listed]:
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        page = Letters(self.database).page(Filter(ids=tuple(wanted)), len(wanted))
        return {each.id: each for each in page.letters}


def with_letters(causes: Sequence[GroupCause], letters: Sequence[Listed]) -> list[GroupCause]:
    """Return the causes with these letters as their newest ones: as somebody is shown them."""
    return [replace(cause, newest=letter) for cause, letter in zip(causes, letters, strict=True)]


def _cause(id_: str, rows: Sequence[Any], newest: Listed) -> GroupCause:
    return GroupCause(
        id=id_,
        count=sum(int(row.count) for row in rows),
        open=sum(int(row.count) for row in rows if row.status == "open"),
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
        newest=newest,
    )
