"""What of a retry topic is in memory, and when more of it is read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.partitions.due_time_limit import SLACK, limit_due_time
from bridge.partitions.retry_read_ahead import (
    AHEAD,
    ALL,
    FAR,
    FEW,
    LOW,
    MOST,
    MOST_BYTES,
    ReadAhead,
    ReadAheadBudget,
)

NOW = 1_000_000.0


def made() -> ReadAhead:
    return ReadAhead(ReadAheadBudget())


def fill(due: ReadAhead, count: int, at: float = NOW, size: int = 10, first: int = 0) -> int:
    """How many of so many records that are due at one time are held."""
    return next((n for n in range(count) if not due.take_in(first + n, at, size, NOW)), count)


@given(st.lists(st.tuples(st.floats(-20, 20), st.floats(0, 1)), max_size=60))
def test_nothing_is_ripe_before_it_is_due_and_all_that_is_held_is_ripe_then(steps: list[tuple[float, float]]) -> None:
    due, now, times = made(), NOW, {}
    ripe: list[int] = []
    for offset, (wait, passes) in enumerate(steps):
        if due.take_in(offset, now + wait, 10, now):
            times[offset] = now + wait
        now += passes
        found = due.pop_due(now)
        assert all(times[each] <= now for each in found)
        ripe += found
        assert all(at > now for each, at in times.items() if each not in ripe)
    assert sorted(ripe + due.pop_due(now + 1_000)) == sorted(times)


@settings(max_examples=30)
@given(st.integers(1, 300), st.floats(0.001, 5))
def test_of_a_long_line_little_is_held_and_all_of_it_comes_in_time(count: int, each: float) -> None:
    due, now, read, ripe = made(), NOW, 0, 0
    while ripe < count:
        while read < count and due.may_read(now) and due.take_in(read, NOW + read * each, 10, now):
            read += 1
        assert due.records <= MOST
        for offset in due.pop_due(now):
            # One that comes due when the line is read without delay is in memory by then.
            assert now - (NOW + offset * each) <= max(1.0, LOW) + 1e-6
            due.release(10)
            ripe += 1
        now += min(0.5, max(0.02, each))


def test_a_million_that_are_due_in_an_hour_cost_what_a_hundred_do() -> None:
    due = made()
    assert fill(due, 1_000_000, NOW + 3_600) == FAR
    assert not due.may_read(NOW)
    assert not due.may_read(NOW + 3_600 - LOW - 0.1)
    assert due.may_read(NOW + 3_600 - LOW)


def test_one_whose_clock_is_an_hour_ahead_holds_back_nothing() -> None:
    due = made()
    assert due.take_in(0, NOW + 3_600, 10, NOW)
    assert due.take_in(1, NOW + 1, 10, NOW)
    assert due.may_read(NOW)
    assert due.pop_due(NOW + 1) == [1]
    assert due.next == NOW + 3_600


def test_what_is_due_is_bounded_in_count_and_in_bytes_and_read_on_at_half() -> None:
    due = made()
    assert fill(due, MOST + 10) == MOST
    assert due.full
    assert not due.may_read(NOW)
    for _ in range(MOST // 2):
        due.release(10)
    assert due.may_read(NOW)
    heavy = made()
    assert fill(heavy, 100, size=MOST_BYTES // 4) == 4


def test_many_partitions_hold_together_no_more_than_all_may_and_each_a_few() -> None:
    budget = ReadAheadBudget()
    parts = [ReadAhead(budget) for _ in range(40)]
    held = [fill(each, MOST) for each in parts]
    assert sum(held) <= ALL + 40 * FEW
    assert min(held) >= FEW
    for each in parts:
        each.release_all()
    assert (budget.records, budget.bytes) == (0, 0)


def test_what_is_due_within_seconds_is_held_before_its_time() -> None:
    due = made()
    assert fill(due, 1_000, NOW + AHEAD - 1) == 1_000
    assert due.pop_due(NOW + AHEAD - 1.01) == []
    assert len(due.pop_due(NOW + AHEAD - 1)) == 1_000


@given(st.floats(-1e6, 1e6), st.integers(1, 86_400), st.none() | st.floats(-1e6, 100), st.floats(0, 1e5))
def test_nothing_waits_longer_than_its_topic_whatever_a_workers_clock_says(
    wait: float, delay: int, appended: float | None, later: float
) -> None:
    now = NOW + later
    written = None if appended is None else NOW + appended
    found = limit_due_time(NOW + wait, delay, written, now)
    assert found <= now + delay + SLACK
    # A clock that is right is believed, whatever those of Kafka's hosts are.
    if wait <= delay:
        assert found == NOW + wait
