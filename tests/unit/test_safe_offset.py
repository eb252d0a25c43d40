"""Which offset is safe to commit."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.fate_rules import Fate
from bridge.partitions.safe_offset import NEAR, NEAR_FATES, Commit, FateChange, OffsetTracker


@pytest.mark.parametrize(
    ("commit", "ordered", "fates", "safe"),
    [
        ("handoff", False, [1, 1, 1, 0, 1], 13),
        ("handoff", False, [2, 3, 4, 5, 5], 15),
        ("handoff", False, [0, 1, 1, 1, 1], 10),
        ("completion", False, [2, 2, 1, 2, 2], 12),
        ("completion", False, [2, 0, 2, 2, 2], 11),
        ("completion", False, [2, 3, 4, 5, 1], 14),
        ("completion", True, [2, 3, 4, 5, 1], 11),
        ("completion", True, [4, 5, 5, 2, 2], 15),
    ],
)
def test_the_safe_offset_is_the_first_that_is_not(commit: Commit, ordered: bool, fates: list[int], safe: int) -> None:
    offsets = OffsetTracker(10, ["charge"], commit, ordered)
    offsets.read(range(10, 15))
    offsets.take_in_fates("charge", 10, bytes(fates))
    assert offsets.safe() == safe


@given(st.lists(st.sampled_from([*Fate, *[Fate.DONE] * 300]), min_size=1, max_size=800), st.booleans(), st.booleans())
def test_what_others_may_wait_for_is_within_what_is_read_often_and_little_else(
    fates: list[Fate], ordered: bool, holds_dead: bool
) -> None:
    offsets = OffsetTracker(10, ["charge"], "completion", ordered, holds_dead)
    offsets.read(range(10, 10 + len(fates)))
    offsets.take_in_fates("charge", 10, bytes(fates))
    seen = offsets.fates("charge", range(10, 10 + len(fates)))
    wanted = {10 + at for at, fate in enumerate(seen) if fate in offsets.unsafe and fate != Fate.OPEN}
    stretches = offsets.find_awaited("charge")
    assert wanted <= {offset for stretch in stretches for offset in stretch}
    for stretch in stretches:
        inside = [offset for offset in stretch if offset in wanted]
        assert (inside[0], inside[-1]) == (stretch.start, stretch.stop - 1)
        assert all(later - offset <= NEAR_FATES + 1 for offset, later in pairwise(inside))


def test_every_handler_counts() -> None:
    offsets = OffsetTracker(0, ["charge", "notify"], "completion")
    offsets.read([0, 1, 2])
    offsets.mark("charge", [0, 1, 2], Fate.DONE)
    offsets.mark("notify", [0, 2], Fate.DONE)
    assert offsets.safe() == 1
    offsets.mark("notify", [1], Fate.DEAD)
    assert offsets.safe() == 3


def test_a_gap_is_no_hole() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    assert offsets.read([3, 4, 8]) == [range(3), range(5, 8)]
    offsets.mark("charge", [3, 4, 8], Fate.DONE)
    assert offsets.safe() == 9


@pytest.mark.parametrize("gap", [1, NEAR, NEAR + 1, 10**9])
def test_what_the_client_has_passed_is_a_gap_and_safe_once_all_before_it_is(gap: int) -> None:
    offsets = OffsetTracker(10, ["charge"], "completion")
    offsets.read([10, 11])
    assert offsets.pass_to(12) == range(12, 12)
    assert offsets.pass_to(12 + gap) == range(12, 12 + gap)
    assert offsets.safe() == 10
    offsets.take_in_fates("charge", 10, bytes([Fate.DONE, Fate.HANDED]))
    assert offsets.safe() == 11
    offsets.read([12 + gap])
    offsets.mark("charge", [12 + gap], Fate.DONE)
    assert (offsets.count("charge", Fate.HANDED), offsets.window) == (1, range(11, 13 + gap))
    assert offsets.size <= NEAR + 3
    offsets.mark("charge", [11], Fate.DONE)
    assert offsets.safe() == 13 + gap
    # With nothing that is not safe.
    assert offsets.pass_to(14 + gap) == range(13 + gap, 14 + gap)
    assert offsets.safe() == 14 + gap


def test_a_gap_stays_one_although_the_ledger_calls_it_open() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    offsets.read([0, 2])
    assert offsets.take_in_fates("charge", 0, bytes([2, 0, 2])) == [
        FateChange(range(1), Fate.OPEN, Fate.DONE),
        FateChange(range(2, 3), Fate.OPEN, Fate.DONE),
    ]
    assert offsets.safe() == 3


def test_a_record_read_where_a_gap_was_is_open() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    offsets.read([0, 2])
    offsets.read([1, 2, 3])
    assert list(offsets.still_open("charge", [0, 1, 2, 3])) == [0, 1, 2, 3]


def test_a_record_read_where_the_ledger_has_a_gap_stays_open() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    offsets.read([0, 1])
    assert offsets.take_in_fates("charge", 0, bytes([Fate.GAP, Fate.DONE])) == [
        FateChange(range(1, 2), Fate.OPEN, Fate.DONE)
    ]
    assert offsets.safe() == 0


def test_a_gap_of_any_length_costs_nothing() -> None:
    offsets, far = OffsetTracker(10, ["charge", "notify"], "completion"), 10**12
    tracemalloc.start()
    assert offsets.read([10, 11, far, far + 2]) == [range(12, far), range(far + 1, far + 2)]
    assert offsets.read([2 * far]) == [range(far + 3, 2 * far)]
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    assert offsets.windows == [range(10, 12), range(far, far + 3), range(2 * far, 2 * far + 1)]
    assert offsets.size == 6
    for handler in ("charge", "notify"):
        assert offsets.take_in_fates(handler, far, bytes([2, 0, 4]))
        offsets.mark(handler, [10, far, 2 * far], Fate.DONE)
        assert list(offsets.still_open(handler, [11, far, 2 * far])) == [11]
        assert offsets.fates(handler, [9, 10, 11, 12, far, far + 2, 2 * far]) == bytes([2, 2, 0, 2, 2, 4, 2])
    assert (offsets.count("charge", Fate.DONE), offsets.oldest("charge", Fate.DEAD)) == (3, far + 2)
    assert offsets.safe() == 11
    offsets.learn("charge", [11, far], bytes([2, 2]))
    offsets.learn("notify", [11, far], bytes([4, 2]))
    assert offsets.safe() == 2 * far + 1


def test_reading_again_changes_no_fate() -> None:
    offsets = OffsetTracker(5, ["charge"], "completion")
    offsets.read(range(5, 10))
    offsets.mark("charge", [5, 6, 8], Fate.DONE)
    assert offsets.safe() == 7
    assert offsets.read(range(5, 12)) == []
    assert list(offsets.still_open("charge", range(5, 12))) == [7, 9, 10, 11]
    assert offsets.window == range(7, 12)


@pytest.mark.parametrize(
    ("before", "now", "back"),
    [
        (Fate.HANDED, Fate.DONE, False),
        (Fate.PARKED, Fate.DONE, False),
        (Fate.DEAD, Fate.PARKED, True),
        (Fate.HANDED, Fate.OPEN, True),
        (Fate.DONE, Fate.OPEN, True),
        (Fate.DONE, Fate.HANDED, True),
        (Fate.PARKED, Fate.HANDED, True),
    ],
)
def test_a_fate_that_went_back_is_seen(before: Fate, now: Fate, back: bool) -> None:
    offsets = OffsetTracker(0, ["charge"], "handoff")
    offsets.read([0, 1])
    offsets.mark("charge", [0], before)
    (change,) = offsets.take_in_fates("charge", 0, bytes([now, Fate.OPEN]))
    assert change == FateChange(range(1), before, now)
    assert change.went_back is back


def test_fates_are_marked_and_found_on_both_sides_of_a_long_gap_also_with_holes_in_between() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    far = 5 + NEAR + 1
    offsets.read([*range(5), *range(far, far + 5)])
    offsets.mark("charge", [0, 1, 4], Fate.DEAD)
    offsets.mark("charge", [2, far], Fate.HANDED)
    offsets.mark("charge", [far + 1, far + 2], Fate.PARKED)
    every = offsets.fates("charge", [*range(5), *range(far, far + 5)])
    open_, handed, parked, dead = Fate.OPEN, Fate.HANDED, Fate.PARKED, Fate.DEAD
    assert list(every) == [dead, dead, handed, open_, dead, handed, parked, parked, open_, open_]
    known = dict(zip([*range(5), *range(far, far + 5)], every, strict=True))
    for some in ([0, 1, 4], [1, 2, 3], [far, far + 3], [4, far], [2]):
        assert list(offsets.fates("charge", some)) == [known[offset] for offset in some]
    assert offsets.still_open("charge", [*known]) == [3, far + 3, far + 4]


def test_what_lies_below_the_window_counts_as_done() -> None:
    offsets = OffsetTracker(0, ["charge"], "handoff")
    offsets.read(range(6))
    offsets.mark("charge", [0, 1, 3], Fate.HANDED)
    offsets.mark("charge", [4], Fate.PARKED)
    assert offsets.safe() == 2
    assert list(offsets.fates("charge", [2, 3, 4])) == [Fate.OPEN, Fate.HANDED, Fate.PARKED]
    assert list(offsets.fates("charge", [1, 2, 4])) == [Fate.DONE, Fate.OPEN, Fate.PARKED]


def test_what_waits_and_what_is_in_flight_is_counted() -> None:
    offsets = OffsetTracker(0, ["charge"], "completion")
    offsets.read(range(100))
    offsets.mark("charge", range(20, 50), Fate.HANDED)
    assert (offsets.count("charge", Fate.HANDED), offsets.count("charge", Fate.OPEN)) == (30, 70)
    assert (offsets.oldest("charge", Fate.HANDED), offsets.oldest("charge", Fate.DEAD)) == (20, None)


@given(
    st.integers(0, 20),
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 2, 3, NEAR, NEAR + 1, NEAR + 2]), st.lists(st.integers(0, 5), min_size=2, max_size=2)
        ),
        max_size=60,
    ),
    st.sampled_from(["handoff", "completion"]),
    st.booleans(),
)
def test_it_agrees_with_a_plain_dictionary(
    first: int, records: list[tuple[int, list[int]]], commit: Commit, ordered: bool
) -> None:
    offsets, plain, at = OffsetTracker(first, ["a", "b"], commit, ordered), {}, first - 1
    for step, fates in records:
        at += step
        offsets.read([at])
        plain[at] = fates
    window = offsets.window
    for number, handler in enumerate(("a", "b")):
        found = bytes(plain[o][number] if o in plain else 0 for o in window)
        changes = offsets.take_in_fates(handler, window.start, found)
        changed = {o: change.fate for change in changes for o in change.offsets}
        assert changed == {o: fates[number] for o, fates in plain.items() if fates[number]}
        assert not offsets.take_in_fates(handler, window.start, found)
    unsafe = {Fate.OPEN} | ({Fate.HANDED} if commit == "completion" else set()) | ({Fate.PARKED} if ordered else set())
    expected = next((o for o, fates in plain.items() if set(map(Fate, fates)) & unsafe), at + 1)
    # A gap right before the first unsafe record is safe too, and a commit may point at either.
    assert offsets.safe() == expected
