"""The rate of failures, and whether it grows (pure)."""

from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

#: Least failures in an hour that are growth, however few there were before.
LEAST: Final = 10
#: The factor over the usual rate that is growth.
TIMES: Final = 2
#: Hours from which the usual rate is computed.
USUAL: Final = 24
#: Milliseconds.
HOUR: Final = 3_600_000
WEEK: Final = 168


class FailureGrowth(NamedTuple):
    """A growth of failures over the usual rate.

    Attributes:
        since: the begin of the first growing hour, or the first failure ever, ms since the epoch.
        failures: the failures since then.
        usual: failures an hour in the day before.
    """

    since: int
    failures: int
    usual: float


class FailureRate(NamedTuple):
    """Failures an hour, over the last day and the last week."""

    day: float
    week: float


def measure_growth(hours: Mapping[int, int], now: int, first_at: int = 0) -> FailureGrowth | None:
    """Return the growth of failures: this hour, or the last whole one, has more than twice the usual number; else
    `None`.

    The usual number is the median of the 24 hours before, so one bad hour does not hide the next. At least 10 failures.

    Parameters:
        hours: failures by hour of Unix time; an hour without failures may be missing.
        now, first_at: ms since the epoch; the time of the first failure.
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
    """Return the recent failures an hour."""
    this = now // HOUR
    return FailureRate(_mean(hours, this, USUAL), _mean(hours, this, WEEK))


def _mean_before(hours: Mapping[int, int], before: int) -> float:
    return median(hours.get(hour, 0) for hour in range(before - USUAL, before))


def _is_growing(count: int, usual: float) -> bool:
    return count >= LEAST and count > TIMES * usual


def _mean(hours: Mapping[int, int], this: int, length: int) -> float:
    return sum(hours.get(hour, 0) for hour in range(this - length + 1, this + 1)) / length
