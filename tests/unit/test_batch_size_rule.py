"""How many deliveries a message carries where nobody has said how many."""

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.dispatch.batch_size_rule import (
    FEW,
    LOST_FOR,
    MOST,
    SLOW_FOR,
    WITHIN,
    BatchSize,
    find_batch_size,
    share_among_processes,
)
from bridge.dispatch.queue_room import (
    AHEAD,
    BYTES_AHEAD,
    MOST_AHEAD,
    MOST_EACH,
    UNKNOWN_EACH,
    UNKNOWN_IN_ALL,
    WORK_BESIDE,
    WORK_EACH,
    counts_until_ended,
    divide_queue_work,
    find_queue_room,
)
from bridge.ledger.handler_costs import DeliveryCost, KnownCost

MS = 1e-3


def cost(mean: float, spread: float = 0.0, deliveries: int = 1_000) -> DeliveryCost:
    return DeliveryCost(deliveries, mean * deliveries, (mean**2 + spread**2) * deliveries)


def grown(known: KnownCost, at_once: int = 1) -> BatchSize:
    """The size after many looks."""
    size = BatchSize(0, "")
    for _ in range(20):
        size = find_batch_size(known, size.number, at_once)
    return size


@pytest.mark.parametrize(
    ("known", "number"),
    [
        (KnownCost(), 1),
        (KnownCost(cost(14e-6)), MOST),
        (KnownCost(cost(1 * MS)), 50),
        (KnownCost(cost(10 * MS)), 5),
        (KnownCost(cost(30 * MS)), 1),
        (KnownCost(cost(2.0)), 1),
        (KnownCost(cost(14e-6), lost=LOST_FOR - 1), 1),
        (KnownCost(cost(14e-6), lost=LOST_FOR + 1), MOST),
        (KnownCost(cost(14e-6), slow=SLOW_FOR - 1), FEW),
        (KnownCost(cost(30 * MS), slow=SLOW_FOR - 1), 1),
        (KnownCost(cost(14e-6), slow=SLOW_FOR + 1), MOST),
    ],
    ids=[
        "nothing is known",
        "no-op",
        "a millisecond",
        "ten milliseconds",
        "thirty milliseconds: two would be too long",
        "seconds",
        "a process was lost",
        "a process was lost a while ago",
        "a run was slow, one in thousands",
        "slow anyway",
        "a run was slow, minutes ago",
    ],
)
def test_a_batch_takes_about_fifty_milliseconds(known: KnownCost, number: int) -> None:
    assert grown(known).number == number


@pytest.mark.parametrize(
    ("known", "number"),
    [
        (KnownCost(), 1),
        (KnownCost(cost(1.0)), 100),
        (KnownCost(cost(0.1 * MS)), MOST),
        (KnownCost(cost(1.0), lost=LOST_FOR - 1), 1),
        (KnownCost(cost(0.1 * MS), slow=SLOW_FOR - 1), MOST),
        (KnownCost(DeliveryCost(1_000, 1_000 * 0.5 * MS, 0.0, 1_000 * 20 * MS)), 200),
    ],
    ids=[
        "nothing is known",
        "seconds",
        "no-op",
        "a process was lost",
        "a run was slow",
        "quick ones wait for a slow one",
    ],
)
def test_a_batch_has_as_many_as_a_process_runs_side_by_side(known: KnownCost, number: int) -> None:
    assert grown(known, 100).number == number


def test_that_they_run_side_by_side_is_said_in_words() -> None:
    assert str(grown(KnownCost(cost(1.0)), 100)) == "100: 1 s each, 100 side by side"


@pytest.mark.parametrize(
    ("wait", "number", "why"),
    [
        (0.0, 5, "10 ms each"),
        (0.5, 5, "10 ms each"),
        (1.0, 10, "10 ms each, and 1 s of them wait"),
        (9.0, 25, "10 ms each, and 9 s of them wait"),
    ],
)
def test_a_batch_takes_a_tenth_of_what_its_deliveries_wait_anyway(wait: float, number: int, why: str) -> None:
    size = find_batch_size(KnownCost(cost(10 * MS)), 500, wait=wait)
    assert (size.number, size.why) == (number, why)


def test_what_goes_one_by_one_does_so_however_much_waits() -> None:
    assert find_batch_size(KnownCost(cost(30 * MS)), 500, wait=100.0).number == 1


@pytest.mark.parametrize("part", [0.01, 0.001, 0.0001])
def test_what_is_mostly_quick_and_now_and_then_very_slow_goes_in_small_batches(part: float) -> None:
    quick, slow = 0.1 * MS, 2.0
    mean = (1 - part) * quick + part * slow
    squares = (1 - part) * quick**2 + part * slow**2
    assert grown(KnownCost(DeliveryCost(10_000, mean * 10_000, squares * 10_000))).number <= 6


def test_one_short_pause_of_the_machine_costs_no_batch_its_size() -> None:
    pause = DeliveryCost(10_000, 10_000 * 50e-6 + 0.1, 10_000 * 50e-6**2 + 0.1**2)
    assert grown(KnownCost(pause)).number > MOST / 2


def test_the_size_doubles_at_most_from_look_to_look_or_is_that_of_the_deliveries_whose_times_are_known() -> None:
    sizes = [find_batch_size(KnownCost(), 0)]
    for deliveries in (3, 3, 3, 100, 100, 10_000):
        sizes.append(find_batch_size(KnownCost(cost(14e-6, deliveries=deliveries)), sizes[-1].number))
    assert [size.number for size in sizes] == [1, 3, 6, 12, 100, 200, MOST]


def test_what_is_known_of_the_last_run_counts_at_once_and_little_goes_out_ahead_by_it() -> None:
    known = KnownCost(cost(14e-6))
    first = find_batch_size(known, 0)
    assert first == (MOST, "14 µs each", True)
    assert find_batch_size(known, first.number) == (MOST, "14 µs each", False)
    assert find_queue_room(first, known.cost, 0, 1) == ceil(AHEAD / (MOST * 14e-6))


def test_what_a_message_costs_by_itself_makes_no_batch_smaller() -> None:
    """On a busy machine a message of one takes 20 ms, whatever its handler does: in ones it never caught up."""
    alone = KnownCost(DeliveryCost(100, 0.01, 1e-6, 2.0, once=2.0))
    assert grown(alone).number == MOST
    # What each delivery of many adds to its message counts: dead letters, say.
    assert grown(KnownCost(DeliveryCost(100, 0.01, 1e-6, 2.0))).number == 2


def test_the_reason_is_said_in_words() -> None:
    assert str(find_batch_size(KnownCost(), 0)) == "1: its times are not known yet"
    assert str(find_batch_size(KnownCost(cost(1.25 * MS)), 64)) == "40: 1.2 ms each"
    assert str(find_batch_size(KnownCost(cost(50e-6, deliveries=8)), 4)) == "8: growing, 50 µs each"
    assert str(find_batch_size(KnownCost(cost(440e-6)), 500)) == "113: 440 µs each"
    assert str(find_batch_size(KnownCost(cost(0.999996 * MS, deliveries=8)), 4)) == "8: growing, 1000 µs each"
    assert str(find_batch_size(KnownCost(cost(123.0)), 4)) == "1: 123 s each"
    assert str(find_batch_size(KnownCost(cost(1 * MS, 20 * MS)), 64)) == "5: 1 ms each, give or take 20 ms"
    assert str(find_batch_size(KnownCost(cost(1 * MS), lost=2), 64)) == "1: a process was lost with one of its messages"
    assert str(share_among_processes(BatchSize(40, "1.2 ms each"), 100, 0, 4)) == "12: 4 processes share 100 that wait"


@pytest.mark.parametrize(
    ("ready", "queued", "processes", "number"),
    [
        (1, 0, 4, 1),
        (400, 0, 4, 10),
        (100, 0, 4, 10),
        (40, 0, 4, 5),
        (40, 4, 4, 10),
        (3, 100, 4, 10),
        (8, 0, 0, 4),
    ],
    ids=[
        "one record",
        "a burst: as many as take their time",
        "a burst",
        "a small burst: each of four processes has two",
        "half of what they are to have waits in the queue",
        "the queue is long: nobody is idle",
        "nobody is there yet: one process",
    ],
)
def test_processes_share_what_waits(ready: int, queued: int, processes: int, number: int) -> None:
    assert share_among_processes(BatchSize(10, ""), ready, queued, processes).number == number


COSTS = st.builds(
    cost,
    st.floats(1e-6, 1e4),
    st.floats(0, 1e4),
    st.integers(1, 100_000),
)
KNOWN = st.builds(KnownCost, st.none() | COSTS, st.none() | st.floats(0, 1e6), st.none() | st.floats(0, 1e6))


@given(KNOWN, st.integers(0, MOST), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 1_000))
def test_the_size_keeps_all_its_bounds(known: KnownCost, before: int, ready: int, queued: int, processes: int) -> None:
    size = find_batch_size(known, before)
    measured = int(known.cost.deliveries) if known.cost is not None else 0
    assert 1 <= size.number <= max(1, min(MOST, max(2 * before, measured)))
    assert known.cost is not None or size.number == 1
    assert not (known.lost is not None and known.lost < LOST_FOR) or size.number == 1
    if known.cost is not None and size.number > 1:
        assert size.number * known.cost.mean <= WITHIN * 1.001
    used = share_among_processes(size, ready, queued, processes)
    assert 1 <= used.number <= size.number
    idle = 2 * max(1, processes) - queued
    if idle > 0 and used.number > 1:
        assert ready / used.number >= idle
    assert size.why
    assert used.why


@given(KNOWN, st.integers(0, 10**5), st.integers(1, 1_000), st.integers(0, 5))
def test_what_is_in_the_queue_is_bounded_by_what_processes_do_in_seconds(
    known: KnownCost, queued: int, processes: int, beside: int
) -> None:
    size = grown(known)
    left = find_queue_room(size, known.cost, queued, processes, beside=beside)
    assert left >= 0
    if known.cost is not None and not size.grows:
        work = WORK_BESIDE / beside if beside else WORK_EACH
        assert (left - processes) * size.number * known.cost.mean <= work * processes * 1.001
        assert left * size.number <= MOST_AHEAD or left <= MOST_EACH * processes


@pytest.mark.parametrize(
    ("seconds", "alone", "beside", "of_three"),
    [(2.0, 10, 4, 2), (0.2, 100, 20, 7), (60.0, 4, 4, 2), (14e-6, 400, 400, 191), (1 * MS, 400, 80, 27)],
)
def test_what_is_slow_has_no_more_ahead_than_its_seconds_and_leaves_room_to_others(
    seconds: float, alone: int, beside: int, of_three: int
) -> None:
    known = KnownCost(cost(seconds))
    size = grown(known)
    assert find_queue_room(size, known.cost, 0, 4) == alone
    assert find_queue_room(size, known.cost, 0, 4, beside=1) == beside
    assert find_queue_room(size, known.cost, 0, 4, beside=3) == of_three


@pytest.mark.parametrize(
    ("others", "parts"),
    [([], 1), ([inf], 2), ([inf, inf, inf], 4), ([1.0], 4 / 3), ([3.0], 2), ([1.0, inf], 8 / 3), ([0.0], 1)],
)
def test_who_wants_less_than_its_part_of_the_queue_leaves_the_rest_to_the_others(
    others: list[float], parts: float
) -> None:
    assert divide_queue_work(4, others) == pytest.approx(parts)


@pytest.mark.parametrize(
    ("known", "queued", "unended", "left"),
    [
        (KnownCost(cost(2.0)), 0, 0, 4),
        (KnownCost(cost(2.0)), 0, 4, 4),
        (KnownCost(cost(2.0)), 0, 6, 2),
        (KnownCost(cost(2.0)), 0, 8, 0),
        (KnownCost(cost(2.0)), 4, 6, 0),
        (KnownCost(cost(2.0)), 0, 16, 0),
        (KnownCost(), 0, 0, 16),
        (KnownCost(), 0, 4, 12),
        (KnownCost(), 0, 16, 0),
    ],
    ids=[
        "nothing is out",
        "each process runs one, nobody has more",
        "workers have taken two ahead",
        "as many run as wait",
        "the queue is full",
        "workers have taken all that they take ahead",
        "unknown",
        "unknown, each process runs one",
        "unknown: what runs is of its few",
    ],
)
def test_slow_messages_that_workers_have_taken_ahead_count_as_waiting(
    known: KnownCost, queued: int, unended: int, left: int
) -> None:
    assert counts_until_ended(grown(known), known.cost)
    assert find_queue_room(grown(known), known.cost, queued, 4, beside=1, unended=unended) == left


@pytest.mark.parametrize(
    ("size", "seconds", "counts"), [(1, 0.02, False), (1, 0.5, True), (200, 14e-6, False), (200, 10 * MS, True)]
)
def test_a_message_counts_until_it_has_ended_if_it_takes_as_long_as_all_that_may_wait(
    size: int, seconds: float, counts: bool
) -> None:
    assert counts_until_ended(BatchSize(size, ""), cost(seconds)) is counts


def test_a_given_batch_is_bounded_by_its_seconds_too() -> None:
    """200 of 10 ms are two seconds."""
    assert find_queue_room(BatchSize(200, "given as batch="), cost(10 * MS), 0, 4) == 10
    assert find_queue_room(BatchSize(200, "given as batch="), cost(14e-6), 0, 4) == 1_000


@given(KNOWN, st.integers(0, 10**5), st.integers(0, 1_000), st.floats(1, 1e8))
def test_what_is_in_the_queue_is_bounded_in_bytes_too_and_each_process_has_a_message(
    known: KnownCost, queued: int, processes: int, weight: float
) -> None:
    for size in (grown(known), find_batch_size(known, 8)):
        left = find_queue_room(size, known.cost, queued, processes, weight)
        assert left <= find_queue_room(size, known.cost, queued, processes)
        assert (left + queued) * weight <= BYTES_AHEAD or left + queued <= max(queued, 1, processes)
        assert find_queue_room(size, known.cost, 0, processes, weight) >= max(1, processes)


def test_large_records_wait_in_kafka_and_not_in_the_broker() -> None:
    size, each = grown(KnownCost(cost(14e-6))), cost(14e-6)
    assert [find_queue_room(size, each, 0, 64, weight) for weight in (0, 500_000, 10**6, 10**8)] == [3200, 512, 256, 64]


def test_where_no_process_is_there_the_queue_takes_a_thousand_of_what_is_unknown_and_else_work_for_one() -> None:
    assert find_queue_room(find_batch_size(KnownCost(), 0), None, 100, 0) == UNKNOWN_IN_ALL - 100
    assert find_queue_room(find_batch_size(KnownCost(), 0), None, 0, 64) == 64 * UNKNOWN_EACH
    assert find_queue_room(grown(KnownCost(cost(2.0))), cost(2.0), 0, 0) == 3


@given(COSTS, st.integers(1, 64))
def test_what_is_held_back_leaves_every_process_enough_to_do_until_the_next_look(
    each: DeliveryCost, processes: int
) -> None:
    size = find_batch_size(KnownCost(each), 2)
    left = find_queue_room(size, each, 0, processes)
    assert left is not None
    least = min(MOST_EACH, max(UNKNOWN_EACH, int(each.deliveries)))
    assert left * size.number * each.mean >= AHEAD * processes * 0.999 or left >= least * processes


def test_of_little_measured_little_goes_out_for_what_waits_keeps_its_small_size() -> None:
    few = cost(1 * MS, deliveries=2)
    assert find_queue_room(find_batch_size(KnownCost(few), 1), few, 0, 2) == 2 * UNKNOWN_EACH
