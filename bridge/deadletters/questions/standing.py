"""Groups with what is known beside them: what runs, which plan has them, what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bridge.deadletters.questions.advising import Around, Suggestion, advice
from bridge.deadletters.questions.groups import Grouped
from bridge.deadletters.questions.running import Running, running
from bridge.deadletters.store import standing
from bridge.deadletters.store.database import Database
from bridge.handlers import Routes
from bridge.settings import Settings


class Standing(NamedTuple):
    """A group, and what is known beside it."""

    group: Grouped
    around: Around
    next: Suggestion


class Standings(NamedTuple):
    """Groups as they stand.

    Attributes:
        trouble: why it is not known what runs; "": it is.
    """

    groups: tuple[Standing, ...]
    trouble: str


@dataclass(frozen=True)
class GroupStandings:
    """What is asked of groups by who decides on them. Raises DeskUnavailable where the database does not answer."""

    settings: Settings
    routes: Routes
    database: Database

    def of(self, groups: Sequence[Grouped]) -> Standings:
        """These groups, with what is known beside them; what Redis does not tell is not known."""
        runs = running(self.settings, self.routes)
        replaying = [each.id for each in groups if each.statuses.get("replaying")]
        with self.database.reading() as connection:
            plans = standing.plans(connection, replaying)
            again = standing.died_again(connection, [each.id for each in groups if each.open])
        return Standings(tuple(_standing(each, runs, plans, again) for each in groups), runs.trouble)

    def died_again(self, group: Grouped) -> int:
        """How many open letters of a group were replayed before."""
        with self.database.reading() as connection:
            return standing.died_again(connection, [group.id]).get(group.id, 0)


def _standing(group: Grouped, runs: Running, plans: dict[int, int], again: dict[int, int]) -> Standing:
    around = Around(
        plan=plans.get(group.id),
        running=runs.versions.get(group.handler, {}),
        down=runs.down.get(group.handler, ""),
        died_again=group.id in again,
    )
    return Standing(group, around, advice(group, around))
