"""What was parked and live records share a bridge's time: neither waits long for the other."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.record_buffer import (
    COST_ELSEWHERE,
    FEW_RETRY_RECORDS,
    LIVE_FOR,
    MANY_RETRY_RECORDS,
    REST_AT_MOST,
    RecordBuffer,
    RetryTimeShare,
)
from bridge.kafka.clients import Record


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_live_records_what_was_parked_never_rests() -> None:
    clock = Clock()
    rests = RetryTimeShare(0.5, clock)
    rests.note_spent(0.01)
    assert (rests.left, rests.few) == (0.0, MANY_RETRY_RECORDS)
    rests.note_live()
    clock.now += LIVE_FOR
    rests.note_spent(0.01)
    assert (rests.left, rests.few) == (0.0, MANY_RETRY_RECORDS)


def test_beside_live_records_a_few_are_taken_up_and_none_during_the_rest() -> None:
    clock = Clock()
    rests = RetryTimeShare(0.5, clock)
    rests.note_live()
    assert rests.few == FEW_RETRY_RECORDS
    rests.note_spent(0.004)
    assert rests.left == pytest.approx(0.004 * COST_ELSEWHERE)
    assert rests.few == 0
    clock.now += 0.004 * COST_ELSEWHERE
    assert rests.few == FEW_RETRY_RECORDS


@given(st.floats(0.05, 0.95), st.floats(0.0001, 10.0))
def test_the_rest_is_the_others_share_and_never_long(share: float, seconds: float) -> None:
    clock = Clock()
    rests = RetryTimeShare(share, clock)
    rests.note_live()
    rests.note_spent(seconds)
    assert rests.left == pytest.approx(min(REST_AT_MOST, seconds * COST_ELSEWHERE * (1 - share) / share), abs=1e-9)


PARKED = {("r1", 0), ("r2", 0)}


class World:
    """What was read of two partitions of a retry topic and one of its source, a number for each record."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held = RecordBuffer(BridgeMetrics(), lambda: self.now)

    def read(self, **counts: int) -> None:
        for name, count in counts.items():
            self.held.add(((name, 0), cast(Record, number)) for number in range(count))

    def live(self) -> dict[str, int]:
        return {name: len(some) for (name, _), some in self.held.take_live(PARKED).items()}

    def parked(self, most: int) -> dict[str, list[Any]]:
        return {name: list(some) for (name, _), some in self.held.take_parked(PARKED, most).items()}


def test_live_records_are_taken_in_at_once_and_what_was_parked_a_little_at_a_time_in_turn() -> None:
    world = World()
    world.read(r1=FEW_RETRY_RECORDS + 10, r2=FEW_RETRY_RECORDS + 10, live=3_000)
    assert world.live() == {"live": 3_000}
    assert world.parked(FEW_RETRY_RECORDS) == {"r1": list(range(FEW_RETRY_RECORDS))}
    assert world.parked(FEW_RETRY_RECORDS) == {"r2": list(range(FEW_RETRY_RECORDS))}
    assert world.parked(MANY_RETRY_RECORDS) == {
        "r1": list(range(FEW_RETRY_RECORDS, FEW_RETRY_RECORDS + 10)),
        "r2": list(range(FEW_RETRY_RECORDS, FEW_RETRY_RECORDS + 10)),
    }
    assert not world.held


def test_how_long_a_live_record_is_held_does_not_count_what_was_parked_nor_those_before_it() -> None:
    world = World()
    world.read(r1=5)
    world.now = 10.0
    assert world.held.since(PARKED) is None
    world.read(live=1)
    world.now = 20.0
    assert world.held.since(PARKED) == 10.0
    taken = world.held.take_live(PARKED)
    world.held.put_back(taken)
    world.read(live=1)
    assert world.held.since(PARKED) == 10.0
    world.live()
    world.read(live=1)
    assert world.held.since(PARKED) == 20.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 200),
            st.integers(0, 200),
            st.integers(0, 5),
            st.sampled_from((0, FEW_RETRY_RECORDS, MANY_RETRY_RECORDS)),
        ),
        max_size=20,
    )
)
def test_nothing_that_was_read_is_lost_or_overtaken(steps: list[tuple[int, int, int, int]]) -> None:
    held = RecordBuffer(BridgeMetrics(), lambda: 0.0)
    read: dict[str, list[int]] = {"r1": [], "r2": [], "live": []}
    taken: dict[str, list[Any]] = {name: [] for name in read}
    for r1, r2, live, most in [*steps, *[(0, 0, 0, MANY_RETRY_RECORDS)] * 60]:
        for name, count in (("r1", r1), ("r2", r2), ("live", live)):
            new = list(range(len(read[name]), len(read[name]) + count))
            read[name] += new
            held.add(((name, 0), cast(Record, number)) for number in new)
        for (name, _), some in (*held.take_live(PARKED).items(), *held.take_parked(PARKED, most).items()):
            taken[name] += some
    assert taken == read
