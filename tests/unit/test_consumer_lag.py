"""Which partitions fall behind, and which only catch up."""

from collections.abc import Callable

import pytest

from bridge.jobs.backlog import Lag, LagWatch

PLACE = ("orders", 0)


def seen(unread: Callable[[float], int], minutes: int) -> Lag | None:
    """What is found at the end, looked at every five seconds."""
    behind, found = LagWatch(), {}
    for second in range(0, minutes * 60 + 1, 5):
        found = behind.add_counts({PLACE: unread(second)}, 1_000.0 + second)
    return found.get(PLACE)


@pytest.mark.parametrize(
    ("unread", "minutes"),
    [
        (lambda second: 0, 30),
        (lambda second: int(second) % 7, 30),
        (lambda second: max(0, 9_000_000 - 1_000 * int(second)), 60),
        (lambda second: 100 * int(second) if second < 200 else max(0, 20_000 - 200 * int(second - 200)), 30),
        (lambda second: 5_000, 30),
        (lambda second: 100 * int(second), 4),
        (lambda second: 100 * int(second % 60), 30),
    ],
    ids=[
        "all is read",
        "what has just come",
        "a catch-up of hours",
        "a burst, and the catch-up after it",
        "as many as ever: an end that was asked for before the last look",
        "not for long enough yet",
        "each minute's burst is read by the next",
    ],
)
def test_what_catches_up_or_has_just_come_is_no_fault(unread: Callable[[float], int], minutes: int):
    assert seen(unread, minutes) is None


def test_what_grows_for_minutes_is_told_with_since_when():
    lag = seen(lambda second: 10 + 100 * int(second), 12)
    assert lag is not None
    assert lag.records == 72_010
    assert lag.since == pytest.approx(1_000, abs=90)


def test_what_grows_between_pauses_that_come_and_go_is_told():
    """Half a minute read, half a minute paused for a long queue: no pause is long, and it falls behind all the same."""
    lag = seen(lambda second: 10 + 50 * int(second) + 1_000 * int(second % 60 >= 30), 10)
    assert lag is not None


def test_a_partition_that_went_away_is_forgotten():
    behind = LagWatch()
    for second in range(0, 600, 5):
        behind.add_counts({PLACE: 10 + second}, float(second))
    assert behind.add_counts({PLACE: 700}, 600.0)
    behind.add_counts({}, 605.0)
    assert behind.add_counts({PLACE: 800}, 610.0) == {}
