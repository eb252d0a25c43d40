"""The schedule of the chaos suite follows from its seed."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.faults import ACTS
from tests.chaos.schedule import LANES, schedule

SEEDS = st.integers(0, 10_000)


@settings(max_examples=20)
@given(SEEDS)
def test_the_same_seed_gives_the_same_schedule_and_another_seed_another(seed: int):
    assert schedule(seed, 60) == schedule(seed, 60) != schedule(seed + 1, 60)


@settings(max_examples=20)
@given(SEEDS, st.floats(10, 300))
def test_a_longer_run_begins_as_a_shorter_one(seed: int, seconds: float):
    assert schedule(seed, seconds) == [fault for fault in schedule(seed, 2 * seconds) if fault.at < seconds]


@settings(max_examples=20)
@given(SEEDS)
def test_one_target_has_one_fault_at_a_time(seed: int):
    for lane in LANES:
        faults = [fault for fault in schedule(seed, 300) if fault.lane == lane]
        assert all(one.at + one.lasts <= other.at + 0.02 for one, other in pairwise(faults))


@settings(max_examples=20)
@given(SEEDS)
def test_the_run_of_ci_has_every_kind_of_fault_and_200_of_them(seed: int):
    faults = schedule(seed, 135)
    kinds = {(name.split()[0], kind.name) for name, lane in LANES.items() for kind in lane.kinds}
    assert {(fault.lane.split()[0], fault.kind) for fault in faults} == kinds
    assert len(faults) >= 200


def test_every_kind_can_be_done():
    assert {(name.split()[0], kind.name) for name, lane in LANES.items() for kind in lane.kinds} == set(ACTS)
