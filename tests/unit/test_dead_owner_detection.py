"""When an owner of taken messages counts as dead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.transport.message_ownership import make_owner, read_patience
from lossless.transport.message_recovery import OwnerWatch


def test_an_owner_that_stops_beating_is_dead_after_the_time() -> None:
    watch = OwnerWatch(30)
    found = {at: watch.dead({"a": "7", "b": str(at)}, at) for at in range(0, 61, 5)}
    assert found[25] == []
    assert found[30] == ["a"]
    assert all("b" not in dead for dead in found.values())


def test_a_watcher_that_was_away_watches_anew() -> None:
    watch = OwnerWatch(30)
    for at in range(0, 26, 5):
        assert watch.dead({"a": "7"}, at) == []
    assert watch.dead({"a": "7"}, 100) == []
    for at in range(105, 130, 5):
        assert watch.dead({"a": "7"}, at) == []
    assert watch.dead({"a": "7"}, 130) == ["a"]


@given(
    st.lists(st.tuples(st.floats(0.1, 40), st.booleans()), max_size=40),
    st.integers(2, 60),
)
def test_nobody_is_dead_who_beat_within_the_time(turns: list[tuple[float, bool]], dead_after: int) -> None:
    watch, now, beat, beat_at = OwnerWatch(dead_after), 0.0, 0, 0.0
    for pause, beats in turns:
        now += pause
        if beats:
            beat, beat_at = beat + 1, now
        if watch.dead({"a": str(beat)}, now):
            assert now - beat_at >= dead_after


def test_an_owner_is_dead_after_the_time_that_it_says() -> None:
    watch = OwnerWatch(30)
    patient, hasty, silent = make_owner(120), make_owner(5), "of an old version"
    found = {at: watch.dead({patient: "1", hasty: "1", silent: "1"}, at) for at in range(121)}
    assert (min(at for at in found if hasty in found[at]), min(at for at in found if silent in found[at])) == (5, 30)
    assert min(at for at in found if patient in found[at]) == 120


def test_one_that_says_nothing_has_the_default_at_least() -> None:
    watch = OwnerWatch(2)
    assert [at for at in range(32) if watch.dead({"a": "1"}, at)] == [30, 31]


def test_the_watcher_looks_often_enough_for_the_shortest_time() -> None:
    watch = OwnerWatch(30)
    assert watch.pause() == 5
    watch.dead({make_owner(3): "1", make_owner(300): "1"}, 0)
    assert watch.pause() == 0.5
    watch.dead({make_owner(0.001): "1"}, 1)
    assert watch.pause() == 0.1


@pytest.mark.parametrize("owner", ["a", "a:", "a:x", "a:nan", "a:inf", "a:-1", "a:0"])
def test_a_time_that_is_none_is_not_said(owner: str) -> None:
    assert read_patience(owner) is None


def test_a_time_is_said_by_a_name_that_nobody_else_has() -> None:
    assert read_patience(make_owner(1.5)) == 1.5
    assert make_owner(1.5) != make_owner(1.5)
