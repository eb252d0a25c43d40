"""Which offset is safe to commit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.fates import Fate
from bridge.offsets import Change, Commit, Offsets


@pytest.mark.parametrize(
    ("commit", "ordered", "fates", "safe"),
    [
        ("handoff", False, [1, 1, 1, 0, 1], 13),
        ("handoff", False, [2, 3, 4, 5, 6], 15),
        ("handoff", False, [0, 1, 1, 1, 1], 10),
        ("completion", False, [2, 2, 1, 2, 2], 12),
        ("completion", False, [2, 0, 2, 2, 2], 11),
        ("completion", False, [2, 3, 4, 5, 1], 14),
        ("completion", True, [2, 3, 4, 5, 1], 11),
        ("completion", True, [4, 5, 6, 2, 2], 15),
    ],
)
def test_the_safe_offset_is_the_first_that_is_not(commit: Commit, ordered: bool, fates: list[int], safe: int) -> None:
    offsets = Offsets(10, ["charge"], commit, ordered)
    offsets.read(range(10, 15))
    offsets.saw("charge", 10, bytes(fates))
    assert offsets.safe() == safe


def test_every_handler_counts() -> None:
    offsets = Offsets(0, ["charge", "notify"], "completion")
    offsets.read([0, 1, 2])
    offsets.mark("charge", [0, 1, 2], Fate.DONE)
    offsets.mark("notify", [0, 2], Fate.DONE)
    assert offsets.safe() == 1
    offsets.mark("notify", [1], Fate.DEAD)
    assert offsets.safe() == 3


def test_a_gap_is_no_hole() -> None:
    offsets = Offsets(0, ["charge"], "completion")
    assert offsets.read([3, 4, 8]) == [range(3), range(5, 8)]
    offsets.mark("charge", [3, 4, 8], Fate.DONE)
    assert offsets.safe() == 9


def test_a_gap_stays_one_although_the_ledger_calls_it_open() -> None:
    offsets = Offsets(0, ["charge"], "completion")
    offsets.read([0, 2])
    assert offsets.saw("charge", 0, bytes([2, 0, 2])) == [
        Change(range(1), Fate.OPEN, Fate.DONE),
        Change(range(2, 3), Fate.OPEN, Fate.DONE),
    ]
    assert offsets.safe() == 3


def test_a_record_read_where_a_gap_was_is_open() -> None:
    offsets = Offsets(0, ["charge"], "completion")
    offsets.read([0, 2])
    offsets.read([1, 2, 3])
    assert list(offsets.still_open("charge", [0, 1, 2, 3])) == [0, 1, 2, 3]


def test_reading_again_changes_no_fate() -> None:
    offsets = Offsets(5, ["charge"], "completion")
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
        (Fate.DEAD, Fate.PARKED, False),
        (Fate.HANDED, Fate.OPEN, True),
        (Fate.DONE, Fate.OPEN, True),
        (Fate.DONE, Fate.HANDED, True),
        (Fate.PARKED, Fate.HANDED, True),
    ],
)
def test_a_fate_that_went_back_is_seen(before: Fate, now: Fate, back: bool) -> None:
    offsets = Offsets(0, ["charge"], "handoff")
    offsets.read([0, 1])
    offsets.mark("charge", [0], before)
    (change,) = offsets.saw("charge", 0, bytes([now, Fate.OPEN]))
    assert change == Change(range(1), before, now)
    assert change.went_back is back


def test_what_waits_and_what_is_in_flight_is_counted() -> None:
    offsets = Offsets(0, ["charge"], "completion")
    offsets.read(range(100))
    offsets.mark("charge", range(20, 50), Fate.HANDED)
    assert (offsets.count("charge", Fate.HANDED), offsets.count("charge", Fate.OPEN)) == (30, 70)
    assert (offsets.oldest("charge", Fate.HANDED), offsets.oldest("charge", Fate.DEAD)) == (20, None)


@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, 6), min_size=2, max_size=2)), max_size=60),
    st.sampled_from(["handoff", "completion"]),
    st.booleans(),
)
def test_it_agrees_with_a_plain_dictionary(
    first: int, records: list[tuple[int, list[int]]], commit: Commit, ordered: bool
) -> None:
    offsets, plain, at = Offsets(first, ["a", "b"], commit, ordered), {}, first - 1
    for step, fates in records:
        at += step
        offsets.read([at])
        plain[at] = fates
    window = offsets.window
    for number, handler in enumerate(("a", "b")):
        found = bytes(plain[o][number] if o in plain else 0 for o in window)
        changes = offsets.saw(handler, window.start, found)
        changed = {o: change.fate for change in changes for o in change.offsets}
        assert changed == {o: fates[number] for o, fates in plain.items() if fates[number]}
        assert not offsets.saw(handler, window.start, found)
    unsafe = {Fate.OPEN} | ({Fate.HANDED} if commit == "completion" else set()) | ({Fate.PARKED} if ordered else set())
    expected = next((o for o, fates in plain.items() if set(map(Fate, fates)) & unsafe), at + 1)
    # A gap right before the first unsafe record is safe too, and a commit may point at either.
    assert offsets.safe() == expected
