"""How fast failures come, and whether they come faster than usual (pure)."""

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


class FailureGrowth(NamedTuple):
    """More failures than usual.

    Attributes:
        since: the beginning of the first hour of which that is so, or the first failure ever, ms since the epoch.
        failures: how many since.
        usual: how many an hour had in the day before.
    """

    since: int
    failures: int
    usual: float


class FailureRate(NamedTuple):
    """Failures an hour, over the last day and the last week."""

    day: float
    week: float


def measure_growth(hours: Mapping[int, int], now: int, first_at: int = 0) -> FailureGrowth | None:
    """Whether failures grow: this hour, or the last whole one, has more than twice what the day before it had.

    What that day had is the median of its 24 hours, so that one bad hour does not hide the next. At least 10 failures.

    Parameters:
        hours: how many failures fell into each hour of Unix time; an hour without any may be missing.
        now, first_at: ms since the epoch; when the first failure was, before which nothing grew.
    """
    this = now // HOUR
    last = max(this - 1, this, key=lambda hour: hours.get(hour, 0))
    usual = _mean_before(hours, last)
    if not _is_growing(hours.get(last, 0), usual):
        return None
    first = last
    while _is_growing(hours.get(first - 1, 0), usual):
        first -= 1
    return FailureGrowth(max(first * HOUR, first_at), sum(hours.get(hour, 0) for hour in range(first, this + 1)), usual)


def measure_rate(hours: Mapping[int, int], now: int) -> FailureRate:
    """How many failures an hour there were of late."""
    this = now // HOUR
    return FailureRate(_mean(hours, this, USUAL), _mean(hours, this, WEEK))


def _mean_before(hours: Mapping[int, int], before: int) -> float:
    return median(hours.get(hour, 0) for hour in range(before - USUAL, before))


def _is_growing(count: int, usual: float) -> bool:
    return count >= LEAST and count > TIMES * usual


def _mean(hours: Mapping[int, int], this: int, length: int) -> float:
    return sum(hours.get(hour, 0) for hour in range(this - length + 1, this + 1)) / length
