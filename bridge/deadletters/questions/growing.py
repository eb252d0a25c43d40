"""How fast failures come, and whether they come faster than they did (pure)."""

from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

#: Fewer failures than these in an hour are no growth, however few there were before.
LEAST: Final = 10
#: So many times what was usual is growth.
TIMES: Final = 2
#: Hours that say what is usual.
USUAL: Final = 24
#: Milliseconds.
HOUR: Final = 3_600_000
WEEK: Final = 168


class Growth(NamedTuple):
    """More failures than usual.

    Attributes:
        since: the beginning of the first hour of which that is so, or the first failure ever, ms since the epoch.
        failures: how many since.
        usual: how many an hour had in the day before.
    """

    since: int
    failures: int
    usual: float


class Rate(NamedTuple):
    """Failures an hour, over the last day and the last week."""

    day: float
    week: float


def growth(hours: Mapping[int, int], now: int, first_at: int = 0) -> Growth | None:
    """Whether failures grow: this hour, or the last whole one, has more than twice what the day before it had.

    What that day had is the median of its 24 hours, so that one bad hour does not hide the next. At least 10 failures.

    Parameters:
        hours: how many failures fell into each hour of Unix time; an hour without any may be missing.
        now, first_at: ms since the epoch; when the first failure was, before which nothing grew.
    """
    this = now // HOUR
    last = max(this - 1, this, key=lambda hour: hours.get(hour, 0))
    usual = _usual(hours, last)
    if not _more(hours.get(last, 0), usual):
        return None
    first = last
    while _more(hours.get(first - 1, 0), usual):
        first -= 1
    return Growth(max(first * HOUR, first_at), sum(hours.get(hour, 0) for hour in range(first, this + 1)), usual)


def rate(hours: Mapping[int, int], now: int) -> Rate:
    """How many failures an hour there were of late."""
    this = now // HOUR
    return Rate(_mean(hours, this, USUAL), _mean(hours, this, WEEK))


def _usual(hours: Mapping[int, int], before: int) -> float:
    return median(hours.get(hour, 0) for hour in range(before - USUAL, before))


def _more(count: int, usual: float) -> bool:
    return count >= LEAST and count > TIMES * usual


def _mean(hours: Mapping[int, int], this: int, length: int) -> float:
    return sum(hours.get(hour, 0) for hour in range(this - length + 1, this + 1)) / length
