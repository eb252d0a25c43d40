"""When the next wave of a canary goes out, when it stops, and when it waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model.plan_order import (
    PART,
    WAITS,
    WAVES,
    CanaryTurn,
    decide_next_wave,
    find_canary_limit,
    find_wave,
)


@pytest.mark.parametrize(
    ("wave", "outcomes", "waited", "turn"),
    [
        (0, {"done": 1}, 0, CanaryTurn.GO_ON),
        (0, {"sent": 1}, 0, CanaryTurn.WAIT),
        (0, {"dead": 1}, 0, CanaryTurn.STOP),
        (0, {"unknown": 1}, 0, CanaryTurn.WAIT),
        (0, {"unknown": 1}, WAITS, CanaryTurn.STOP),
        (1, {"done": 4, "dead": 1}, 0, CanaryTurn.STOP),
        (1, {"done": 4, "dead": 1, "sent": 9}, 0, CanaryTurn.STOP),
        (2, {"done": 19, "dead": 1}, 0, CanaryTurn.GO_ON),
        (2, {"done": 18, "dead": 2}, 0, CanaryTurn.STOP),
        (2, {"done": 5, "dead": 1, "sent": 14}, 0, CanaryTurn.WAIT),
        (2, {"done": 5, "dead": 2, "sent": 13}, 0, CanaryTurn.STOP),
        (3, {"done": 95, "dead": 5}, 0, CanaryTurn.GO_ON),
        (3, {"done": 94, "unknown": 6}, 0, CanaryTurn.WAIT),
        (3, {"done": 95, "unknown": 5}, 0, CanaryTurn.GO_ON),
        (3, {"done": 90, "dead": 5, "unknown": 5}, 0, CanaryTurn.WAIT),
        (0, {"claimed": 1}, WAITS - 1, CanaryTurn.WAIT),
        (0, {"sent": 1}, WAITS, CanaryTurn.STOP),
        (0, {"skipped": 1}, 0, CanaryTurn.GO_ON),
        (1, {"refused": 2, "discarded": 1, "done": 2}, 0, CanaryTurn.GO_ON),
        (1, {}, 0, CanaryTurn.GO_ON),
    ],
)
def test_it_goes_on_when_all_of_the_first_waves_and_most_of_the_later_ones_ended_well(wave, outcomes, waited, turn):
    decision = decide_next_wave(wave, outcomes, waited)
    assert decision.turn is turn
    assert bool(decision.why) is (turn is CanaryTurn.STOP)


def test_why_it_stopped_is_said_in_numbers():
    assert decide_next_wave(2, {"done": 17, "dead": 2, "unknown": 1}, 0).why == "canary: 2 of 20 of wave 3 died again"
    assert decide_next_wave(2, {"done": 18, "sent": 1, "unknown": 1}, WAITS).why == (
        "canary: 2 of wave 3 had no outcome after 3600 s"
    )


def test_a_canary_that_was_gone_on_with_is_as_strict_as_a_new_one():
    stopped = decide_next_wave(3, {"done": 4, "dead": 1}, 0, [2])
    assert stopped == (CanaryTurn.STOP, "canary: 1 of 5 of wave 4 died again")
    assert decide_next_wave(4, {"done": 19, "dead": 1}, 0, [2]).turn is CanaryTurn.GO_ON
    assert decide_next_wave(1, {"done": 19, "dead": 1}, 0, [2]).turn is CanaryTurn.STOP


_COUNTS = st.fixed_dictionaries({name: st.integers(0, 100) for name in ("done", "dead", "unknown", "sent", "claimed")})


@given(st.integers(0, 3), _COUNTS, st.floats(0, WAITS * 2))
def test_nothing_goes_on_before_all_is_known_and_nothing_waits_for_ever(wave, outcomes, waited):
    turn = decide_next_wave(wave, outcomes, waited).turn
    pending = outcomes["sent"] + outcomes["claimed"]
    bad = outcomes["dead"] + outcomes["unknown"]
    if turn is CanaryTurn.GO_ON:
        assert not pending
        assert outcomes["done"] >= PART * (outcomes["done"] + bad)
    if turn is CanaryTurn.WAIT:
        assert pending or outcomes["unknown"]
        assert waited < WAITS


@given(st.integers(0, 3), _COUNTS)
def test_a_stop_before_all_is_known_would_be_one_also_if_all_the_rest_ended_well(wave, outcomes):
    if decide_next_wave(wave, outcomes, 0).turn is CanaryTurn.STOP:
        open_ = ("sent", "claimed", "unknown")
        best = outcomes | {"done": outcomes["done"] + sum(outcomes[name] for name in open_)} | dict.fromkeys(open_, 0)
        assert decide_next_wave(wave, best, 0).turn is CanaryTurn.STOP


def test_waves_have_1_5_20_and_100_letters_and_the_last_one_the_rest():
    found = [find_wave(position) for position in range(1, 200)]
    assert [found.count(wave) for wave in range(4)] == list(WAVES)
    assert set(found[sum(WAVES) :]) == {4}


@pytest.mark.parametrize(("stage", "letters", "dead"), [(0, 1, 1), (1, 5, 1), (2, 20, 2), (3, 100, 6), (3, 40, 3)])
def test_how_many_deaths_stop_a_wave(stage, letters, dead):
    assert find_canary_limit(stage, letters) == dead
