"""What follows what, and many fates at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger import fate_rules
from bridge.ledger.fate_rules import OVERWRITES, SETTLED, Fate, follow_fate

_FATES = st.binary(max_size=300).map(lambda raw: bytes(byte % 7 for byte in raw))


@pytest.mark.parametrize(
    ("old", "legal"),
    [
        (Fate.OPEN, {Fate.HANDED, Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.DISCARDED, Fate.GAP}),
        (Fate.HANDED, {Fate.OPEN, Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.DISCARDED}),
        (Fate.DONE, set()),
        (Fate.PARKED, {Fate.DONE, Fate.DEAD, Fate.DISCARDED}),
        (Fate.DEAD, {Fate.DONE, Fate.DISCARDED}),
        (Fate.DISCARDED, {Fate.DONE, Fate.DEAD}),
        (Fate.GAP, {Fate.HANDED, Fate.DONE, Fate.PARKED, Fate.DEAD, Fate.DISCARDED}),
    ],
)
def test_each_fate_is_followed_only_by_these(old: Fate, legal: set[Fate]) -> None:
    assert {wanted for wanted in Fate if follow_fate(old, wanted) is not old} == legal


def test_done_is_the_end() -> None:
    assert not any(Fate.DONE in allowed for allowed in OVERWRITES.values())


def test_nothing_settled_is_handed_or_opened_again() -> None:
    assert not SETTLED & (OVERWRITES[Fate.HANDED] | OVERWRITES[Fate.OPEN] | OVERWRITES[Fate.GAP])


@given(_FATES)
def test_packing_and_unpacking_gives_the_same(some: bytes) -> None:
    even = some[: len(some) // 2 * 2]
    assert fate_rules.unpack_fates(fate_rules.pack_fates(even)) == even


def test_the_lower_offset_is_in_the_high_half() -> None:
    assert fate_rules.pack_fates(bytes([1, 2, 6, 0])) == b"\x12\x60"


@pytest.mark.parametrize("wrong", [bytes([16, 0]), bytes([1])])
def test_what_is_no_pair_of_halves_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="fromhex"):
        fate_rules.pack_fates(wrong)


@given(_FATES, st.sets(st.sampled_from(list(Fate)), min_size=1), st.integers(0, 50))
def test_finding_is_what_a_plain_search_finds(some: bytes, wanted: set[Fate], start: int) -> None:
    expected = next((at for at in range(start, len(some)) if some[at] in wanted), -1)
    assert fate_rules.find_fate(some, wanted, start) == expected
    flat = [at for run in fate_rules.find_fate_runs(some, wanted) for at in run]
    assert flat == [at for at in range(len(some)) if some[at] in wanted]


@given(st.binary(max_size=300).map(lambda raw: bytes(byte % 16 for byte in raw)))
def test_the_first_fate_of_a_later_version_is_found_and_without_one_none_is(some: bytes) -> None:
    expected = next((at for at, fate in enumerate(some) if fate > max(Fate)), -1)
    assert fate_rules.find_unknown_fate(some) == expected


@given(_FATES)
def test_the_counts_add_up(some: bytes) -> None:
    assert sum(fate_rules.count_fates(some).values()) == len(some)


@given(_FATES, st.sampled_from(list(Fate)))
def test_what_changes_is_what_the_table_says(some: bytes, wanted: Fate) -> None:
    assert list(fate_rules.flag_changes(some, wanted)) == [old in OVERWRITES[wanted] for old in map(Fate, some)]
