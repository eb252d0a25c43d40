"""The figures of all dead letters."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bridge.deadletters.db import kind_rows as stored
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.failure_growth import (
    HOUR,
    USUAL,
    WEEK,
    FailureGrowth,
    FailureRate,
    measure_growth,
    measure_rate,
)
from bridge.deadletters.model.letter_view import format_moment


@dataclass(frozen=True, slots=True)
class HandlerTotals:
    """The letters of one handler and reason by status, without zeros."""

    handler: str
    reason: str
    statuses: dict[str, int]


class ResolutionTimes(NamedTuple):
    """Seconds from a letter's last failure to its end: the median and the 90th percentile."""

    half: float
    most: float


class LetterCounts(NamedTuple):
    """The counts of all letters that are cheap to read.

    Attributes:
        statuses: how many letters have each status.
        handled: the same, by handler and reason.
        hours: failures in each of the last 24 hours, the current hour last.
    """

    statuses: dict[str, int]
    handled: tuple[HandlerTotals, ...]
    hours: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LetterStatistics:
    """The figures of all letters.

    Attributes:
        at: the time of the figures, ms since the epoch, as all times here.
        statuses: how many letters have each status.
        handled: the same, by handler and reason.
        groups: how many groups have open letters.
        oldest_open: the oldest failure of an open letter; `None`: none is open.
        rate: failures an hour.
        hours: failures in each of the last 24 hours, the latest last, which is not over.
        resolved_after: of the latest thousand resolved letters; `None`: there are none.
    """

    at: int
    statuses: dict[str, int]
    handled: tuple[HandlerTotals, ...]
    groups: int
    oldest_open: int | None
    rate: FailureRate
    growth: FailureGrowth | None
    hours: tuple[int, ...]
    resolved_after: ResolutionTimes | None

    def to_data(self) -> dict[str, Any]:
        """Return the statistics as JSON-compatible data."""
        return {
            "at": format_moment(self.at),
            "statuses": self.statuses,
            "handlers": [asdict(each) for each in self.handled],
            "groups": self.groups,
            "oldest_open": format_moment(self.oldest_open),
            "oldest_open_seconds": None if self.oldest_open is None else max(0, self.at - self.oldest_open) / 1000,
            "rate_day": round(self.rate.day, 2),
            "rate_week": round(self.rate.week, 2),
            "growing": self.growth is not None,
            "hours": list(self.hours),
            "resolved_after": None if self.resolved_after is None else self.resolved_after._asdict(),
        }


@dataclass(frozen=True)
class LetterTotals:
    """The figures of all letters. Every method raises DeskUnavailable if the database does not answer."""

    database: Database
    clock: Callable[[], float] = time.time

    def counted(self) -> LetterCounts:
        """Return the counts of all letters, without reading a letter."""
        this = int(self.clock() * 1000) // HOUR
        with self.database.reading() as connection:
            handled, hours = (
                _build_handler_totals(stored.count_by_handler(connection)),
                stored.count_failures_by_hour(connection, this - USUAL + 1),
            )
        return LetterCounts(_sum_statuses(handled), handled, _count_latest(hours, this))

    def count_failures(self, hours: int) -> tuple[int, ...]:
        """Return the failures of each of the last hours, the current hour last."""
        this = int(self.clock() * 1000) // HOUR
        with self.database.reading() as connection:
            found = stored.count_failures_by_hour(connection, this - hours + 1)
        return _count_latest(found, this, hours)

    def stats(self) -> LetterStatistics:
        """Return the statistics of all letters, from counts that every change updates."""
        now = int(self.clock() * 1000)
        this = now // HOUR
        with self.database.reading() as connection:
            hours = stored.count_failures_by_hour(connection, this - WEEK)
            handled = _build_handler_totals(stored.count_by_handler(connection))
            return LetterStatistics(
                at=now,
                statuses=_sum_statuses(handled),
                handled=handled,
                groups=stored.count_open_groups(connection),
                oldest_open=stored.find_oldest_open(connection),
                rate=measure_rate(hours, now),
                growth=measure_growth(hours, now),
                hours=_count_latest(hours, this),
                resolved_after=_measure_resolution(stored.read_resolution_times(connection)),
            )


def _count_latest(hours: Mapping[int, int], this: int, count: int = USUAL) -> tuple[int, ...]:
    return tuple(hours.get(hour, 0) for hour in range(this - count + 1, this + 1))


def _build_handler_totals(rows: Iterable[tuple[str, str, str, int]]) -> tuple[HandlerTotals, ...]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for handler, reason, status, count in rows:
        found.setdefault((handler, reason), {})[status] = count
    return tuple(HandlerTotals(*names, statuses) for names, statuses in found.items())


def _sum_statuses(handled: Iterable[HandlerTotals]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for totals in handled:
        found.update(totals.statuses)
    return dict(found)


def _measure_resolution(milliseconds: Sequence[int]) -> ResolutionTimes | None:
    """Return the percentiles of sorted times."""
    if not milliseconds:
        return None
    last = len(milliseconds) - 1
    return ResolutionTimes(milliseconds[last // 2] / 1000, milliseconds[last * 9 // 10] / 1000)
