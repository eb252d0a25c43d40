"""All dead letters in figures."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from bridge.deadletters.questions.growing import HOUR, USUAL, WEEK, Growth, Rate, growth, rate
from bridge.deadletters.questions.shown import moment
from bridge.deadletters.store import totals as stored
from bridge.deadletters.store.database import Database


@dataclass(frozen=True, slots=True)
class Handled:
    """The letters of one handler and reason, by status, without what is 0."""

    handler: str
    reason: str
    statuses: dict[str, int]


class Took(NamedTuple):
    """Seconds from a letter's last failure to its end: what half of them took at most, and what nine in ten did."""

    half: float
    most: float


class Counted(NamedTuple):
    """All letters as they stand, in the figures that are had at once.

    Attributes:
        statuses: how many letters have each status.
        handled: the same, by handler and reason.
        hours: failures in each of the last 24 hours, the latest last, which is not over.
    """

    statuses: dict[str, int]
    handled: tuple[Handled, ...]
    hours: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """All letters as they stand.

    Attributes:
        at: when, ms since the epoch, as all times here.
        statuses: how many letters have each status.
        handled: the same, by handler and reason.
        groups: how many groups have open letters.
        oldest_open: when the open letter failed that failed first; `None`: none is open.
        rate: failures an hour.
        hours: failures in each of the last 24 hours, the latest last, which is not over.
        resolved_after: of the latest thousand that were resolved; `None`: none was.
    """

    at: int
    statuses: dict[str, int]
    handled: tuple[Handled, ...]
    groups: int
    oldest_open: int | None
    rate: Rate
    growth: Growth | None
    hours: tuple[int, ...]
    resolved_after: Took | None

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "at": moment(self.at),
            "statuses": self.statuses,
            "handlers": [asdict(each) for each in self.handled],
            "groups": self.groups,
            "oldest_open": moment(self.oldest_open),
            "oldest_open_seconds": None if self.oldest_open is None else max(0, self.at - self.oldest_open) / 1000,
            "rate_day": round(self.rate.day, 2),
            "rate_week": round(self.rate.week, 2),
            "growing": self.growth is not None,
            "hours": list(self.hours),
            "resolved_after": None if self.resolved_after is None else self.resolved_after._asdict(),
        }


@dataclass(frozen=True)
class Totals:
    """What is asked of all letters. Every method raises DeskUnavailable where the database does not answer."""

    database: Database
    clock: Callable[[], float] = time.time

    def counted(self) -> Counted:
        """All letters as they stand now: of no letter anything is read, however many look."""
        this = int(self.clock() * 1000) // HOUR
        with self.database.reading() as connection:
            handled, hours = _handled(stored.handled(connection)), stored.by_hour(connection, this - USUAL + 1)
        return Counted(_summed(handled), handled, _latest(hours, this))

    def stats(self) -> Stats:
        """All letters as they stand now, from what is counted with every change."""
        now = int(self.clock() * 1000)
        this = now // HOUR
        with self.database.reading() as connection:
            hours = stored.by_hour(connection, this - WEEK)
            handled = _handled(stored.handled(connection))
            return Stats(
                at=now,
                statuses=_summed(handled),
                handled=handled,
                groups=stored.groups_open(connection),
                oldest_open=stored.oldest_open(connection),
                rate=rate(hours, now),
                growth=growth(hours, now),
                hours=_latest(hours, this),
                resolved_after=_took(stored.resolved_after(connection)),
            )


def _latest(hours: Mapping[int, int], this: int) -> tuple[int, ...]:
    return tuple(hours.get(hour, 0) for hour in range(this - USUAL + 1, this + 1))


def _handled(rows: Iterable[tuple[str, str, str, int]]) -> tuple[Handled, ...]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for handler, reason, status, count in rows:
        found.setdefault((handler, reason), {})[status] = count
    return tuple(Handled(*names, statuses) for names, statuses in found.items())


def _summed(handled: Iterable[Handled]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in handled:
        found.update(each.statuses)
    return dict(found)


def _took(milliseconds: Sequence[int]) -> Took | None:
    """Of what is sorted."""
    if not milliseconds:
        return None
    last = len(milliseconds) - 1
    return Took(milliseconds[last // 2] / 1000, milliseconds[last * 9 // 10] / 1000)
