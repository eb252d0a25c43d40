"""The bytes that all partitions of a bridge hold have one limit, which they share."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.pause_reasons import PauseReason
from bridge.partitions.partition_limits import HELD_BYTES, HeldBytesLimit, choose_pause_reason, find_equal_share


def reasons(limit: HeldBytesLimit, held: dict[str, int], paused: set[str]) -> set[str]:
    """Return the partitions that pause for memory."""
    share = limit.find_share(held.values())
    return {
        name
        for name, amount in held.items()
        if choose_pause_reason(0, amount, share=share, window_full=False, ordered=False, paused=name in paused)
        is PauseReason.MEMORY_FULL
    }


def test_many_partitions_that_hold_little_each_pause_above_the_total_and_resume_at_half_of_it():
    limit = HeldBytesLimit(1_000)
    held = {f"p{number}": 10 for number in range(100)}
    assert reasons(limit, held, set()) == set()
    held["p0"] = 11
    assert reasons(limit, held, set()) == {*held}
    # Each goes on at half of its share, 5 bytes: one that is empty does not stop the others' rest.
    held = dict.fromkeys(held, 6)
    assert reasons(limit, held, {*held}) == {*held}
    assert reasons(limit, dict.fromkeys(held, 5), {*held}) == set()
    assert limit.find_share([500]) == limit.find_share([999]) == inf


def test_the_partition_that_holds_most_pauses_alone():
    limit = HeldBytesLimit(1_000)
    held = {"slow": 900, **{f"p{number}": 10 for number in range(11)}}
    assert reasons(limit, held, set()) == {"slow"}
    assert reasons(limit, held | {"slow": 500}, {"slow"}) == {"slow"}
    assert reasons(limit, held | {"slow": 390}, {"slow"}) == set()


def test_one_partition_has_its_own_limit_whatever_the_total_is():
    assert reasons(HeldBytesLimit(10 * HELD_BYTES), {"slow": HELD_BYTES + 1, "fast": 1}, set()) == {"slow"}


@pytest.mark.parametrize(
    ("amounts", "total", "share"),
    [([], 10, inf), ([4, 4], 10, inf), ([5, 5], 10, inf), ([6, 6], 10, 5), ([1, 20, 30], 10, 4.5), ([11], 10, 10)],
)
def test_a_share_is_what_is_left_for_those_that_hold_more(amounts: list[int], total: float, share: float):
    assert find_equal_share(amounts, total) == share


@given(st.lists(st.integers(0, 1_000), max_size=20), st.integers(1, 5_000))
def test_what_is_cut_to_the_share_is_within_the_total_and_no_less(amounts: list[int], total: int):
    share = find_equal_share(amounts, total)
    cut = sum(min(amount, share) for amount in amounts)
    assert cut <= total + 1e-6
    assert share == inf or cut == pytest.approx(total)
