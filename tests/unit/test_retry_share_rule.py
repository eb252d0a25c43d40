"""Which part of a queue is of what was parked: neither starves the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.dispatch.queue_room import QueuedWork
from bridge.dispatch.retry_share import (
    JUST_NOW,
    LATELY,
    MESSAGES_PER_PROCESS,
    MESSAGES_PER_PROCESS_SHARED,
    MOST_MESSAGES_PER_PROCESS,
    PLACE_KNOWN_FOR,
    QueueMix,
    adapt_messages_ahead,
    find_retry_batch_size,
    find_retry_room,
)
from tests.hypothesis_profiles import examples

NOTHING = QueuedWork()


@pytest.mark.parametrize(
    ("share", "parked", "others", "each", "processes", "more"),
    [
        (0.5, NOTHING, NOTHING, 10, 4, 8),
        (0.5, QueuedWork(8, 80), NOTHING, 10, 4, 0),
        (0.5, QueuedWork(8, 80), QueuedWork(500, 5_000), 10, 4, 492),
        (0.5, QueuedWork(500, 5_000), QueuedWork(500, 5_000), 10, 4, 0),
        (0.2, NOTHING, QueuedWork(1_000, 8_000), 10, 4, 200),
        (0.5, NOTHING, QueuedWork(20_000, 20_000), 1, 0, 2),
        (0.5, QueuedWork(2, 2), QueuedWork(20_000, 20_000), 1, 0, 0),
    ],
)
def test_a_little_waits_where_workers_keep_up_and_a_share_where_they_do_not(
    share: float, parked: QueuedWork, others: QueuedWork, each: int, processes: int, more: int
) -> None:
    assert find_retry_room(share, parked, others, each, processes) == more


@given(st.floats(0.05, 0.9), st.integers(1, 8), st.floats(0.05, 3), st.integers(1, 20))
@settings(max_examples=examples(40))
def test_each_has_its_share_of_the_workers_and_live_records_all_that_they_need_below_theirs(
    share: float, processes: int, demand: float, each: int
) -> None:
    """A queue, first in, first out; live deliveries come at `demand` times what workers do; parked there are always."""
    live = parked = 0.0
    done_live = done_parked = came = 0.0
    step = 10.0 * processes * each
    for _ in range(200):
        live += demand * step
        came += demand * step
        more = find_retry_room(
            share, QueuedWork(int(parked / each), int(parked)), QueuedWork(int(live), int(live)), each, processes
        )
        parked += more * each
        taken = min(1.0, step / max(1.0, live + parked))
        done_live, done_parked = done_live + live * taken, done_parked + parked * taken
        live, parked = live * (1 - taken), parked * (1 - taken)
    capacity = step * 200
    assert done_live >= min(came, (1 - share) * capacity) * 0.9
    assert done_parked >= min(share, MESSAGES_PER_PROCESS * processes * each / step) * capacity * 0.5


def test_messages_are_small_beside_live_records_and_full_where_there_are_none() -> None:
    # Where a message costs much besides, as many as run in the same time, and never more than take a whole batch's.
    assert [find_retry_batch_size(most, True, 0.000_1) for most in (3, 20, 500)] == [3, 20, 50]
    assert find_retry_batch_size(500, True, 0.1) == 50
    mix = QueueMix()
    mix.update_length(0, 0.0)
    assert (
        find_retry_batch_size(500, mix.busy(0.0)),
        find_retry_batch_size(500, True),
        find_retry_batch_size(3, True),
    ) == (500, 50, 1)
    mix.add(1, 1.0, parked=False)
    mix.update_length(0, 1.1)
    assert mix.busy(1.1)
    assert not mix.busy(1.0 + LATELY)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50), st.integers(0, 5)), max_size=60))
def test_what_waits_is_told_apart_as_it_is_taken(steps: list[tuple[bool, int, int]]) -> None:
    mix, queue = QueueMix(), []
    for now, (parked, deliveries, taken) in enumerate(steps):
        mix.add(deliveries, float(now), parked=parked)
        queue.append((parked, deliveries))
        del queue[:taken]
        mix.update_length(len(queue), float(now))
        assert mix.parked == QueuedWork(sum(p for p, _ in queue), sum(d for p, d in queue if p))
        assert mix.others == QueuedWork(sum(not p for p, _ in queue), sum(d for p, d in queue if not p))


def test_what_others_put_there_counts_as_theirs_and_what_was_put_there_long_ago_as_taken() -> None:
    mix = QueueMix()
    mix.update_length(0, 0.0)
    mix.add(5, 0.0, parked=True)
    mix.update_length(100, 1.0)
    assert (mix.parked, mix.others) == (QueuedWork(1, 5), QueuedWork(99, 99))
    mix.update_length(100, 1.0 + PLACE_KNOWN_FOR)
    assert (mix.parked, mix.others) == (NOTHING, QueuedWork(100, 100))


@pytest.mark.parametrize(
    ("each", "ended", "waits", "busy", "then"),
    [
        (MESSAGES_PER_PROCESS, True, False, False, 2 * MESSAGES_PER_PROCESS),
        (MOST_MESSAGES_PER_PROCESS, True, False, False, MOST_MESSAGES_PER_PROCESS),
        (MESSAGES_PER_PROCESS, False, False, False, MESSAGES_PER_PROCESS),
        (8, True, True, False, 4),
        (8, True, False, True, MESSAGES_PER_PROCESS_SHARED),
        (8, False, False, True, MESSAGES_PER_PROCESS_SHARED),
        (MESSAGES_PER_PROCESS, True, True, True, MESSAGES_PER_PROCESS),
    ],
)
def test_a_bridge_that_turns_slowly_idles_no_workers_and_a_live_record_waits_for_little(
    each: int, ended: bool, waits: bool, busy: bool, then: int
) -> None:
    assert adapt_messages_ahead(each, ended=ended, waits=waits, busy=busy) == then


def test_what_was_handed_off_a_moment_ago_is_told_from_what_was_lately() -> None:
    mix = QueueMix()
    mix.add(1, 1.0, parked=False)
    mix.update_length(0, 2.0)
    assert (mix.busy(2.0 + JUST_NOW), mix.busy(2.0 + JUST_NOW, JUST_NOW), mix.busy(2.0, JUST_NOW)) == (
        True,
        False,
        True,
    )
