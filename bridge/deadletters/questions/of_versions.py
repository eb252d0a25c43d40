"""In which versions a group has failed, which of them run, and what came well meanwhile: whether a new one cures it."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.questions.groups import Grouped
from bridge.deadletters.questions.running import ANSWER_WITHIN, running
from bridge.deadletters.questions.shown import Count
from bridge.deadletters.store import counting, standing
from bridge.deadletters.store.database import Database
from bridge.errors import LedgerUnavailable
from bridge.handlers import Routes
from bridge.ledger import Ledger
from bridge.ledger.counts import HOURS, MINUTES, Series, counted
from bridge.settings import Settings

#: Milliseconds.
_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000


class Meanwhile(NamedTuple):
    """What came of a handler while a version of it ran.

    Attributes:
        since: the whole minute or hour from which on it is counted, ms since the epoch, as all times here.
        failed: letters of the group whose last failure was in this version.
        handled: deliveries that the handler has handled, of the group's topics and by whatever version.
        alone: whether all living workers have this version.
    """

    since: int
    failed: Count
    handled: int
    alone: bool

    @property
    def share(self) -> float | None:
        """How many of a hundred failed so; `None`: others have a part in what was handled, or there was nothing."""
        ended = self.failed.number + self.handled
        return 100 * self.failed.number / ended if self.alone and self.failed.exact and ended else None


class OfVersion(NamedTuple):
    """How a group failed in a version.

    Attributes:
        letters: those that failed last in it, and `open`, how many of these are open.
        workers: how many living workers have it; `None`: that is not known.
        started: when the first of those came up; `None`: there is none, or it is not known.
        failed: the first and the last hour in which it failed; `None`: it has not.
        meanwhile: `None`: it does not run, or that is not known.
    """

    version: str
    letters: int
    open: int
    workers: int | None
    started: int | None
    failed: tuple[int, int] | None
    meanwhile: Meanwhile | None


@dataclass(frozen=True)
class GroupVersions:
    """Raises DeskUnavailable where the database does not answer; what Redis does not tell is not known.

    Parameters:
        clock: Unix time.
    """

    settings: Settings
    routes: Routes
    database: Database
    clock: Callable[[], float] = time.time

    def of(self, group: Grouped) -> list[OfVersion]:
        """In which versions a group has failed, and which run, the latest names first."""
        now = self.clock()
        runs = running(self.settings, self.routes)
        has, started = runs.versions.get(group.handler, {}), runs.started.get(group.handler, {})
        series = _counted(self.settings, group, now) if started else None
        with self.database.reading() as connection:
            failed = standing.by_version(connection, group.id)
            hours = standing.hours_by_version(connection, group.id)
        known = None if runs.trouble else 0
        return [
            OfVersion(
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
        group: Grouped,
        version: str,
        started: int | None,
        series: Iterable[Series] | None,
        now: float,
        *,
        alone: bool,
    ) -> Meanwhile | None:
        if started is None or series is None:
            return None
        since, handled = handled_since(series, started, now)
        asked = Filter(groups=(group.id,), versions=(version,), since=since)
        with self.database.reading() as connection:
            return Meanwhile(since, Count(*counting.count(connection, asked)), handled, alone)


def handled_since(series: Iterable[Series], started: int, now: float) -> tuple[int, int]:
    """From when on it is known what was handled since a version came up, and how much that is (pure).

    By whole minutes of the last hour, else by whole hours of the last day: the first that begins after it came up.

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


def _counted(settings: Settings, group: Grouped, now: float) -> list[Series] | None:
    ledger = Ledger.once(settings, ANSWER_WITHIN)
    if ledger is None:
        return None
    try:
        with closing(ledger):
            return [*counted(ledger, [(topic, group.handler) for topic in group.topics], now).values()]
    except LedgerUnavailable:
        return None
