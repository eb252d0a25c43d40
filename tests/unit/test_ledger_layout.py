"""Where a fate lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.fate_rules import unpack_fates
from bridge.ledger.ledger_layout import PAGE, choose_fates, find_stretches, ledger_key, split_by_page

_OFFSETS = st.one_of(
    st.lists(st.integers(0, 3 * PAGE), unique=True).map(sorted),
    st.lists(st.integers(PAGE - 40, PAGE + 40), unique=True).map(sorted),
    st.builds(range, st.integers(0, 3 * PAGE), st.integers(0, 3 * PAGE)),
)


@given(_OFFSETS)
def test_stretches_choose_these_offsets_and_no_other(offsets: list[int]) -> None:
    found = []
    for page, first, mask in find_stretches(offsets):
        assert len(mask) <= PAGE // 2 - first
        assert set(unpack_fates(mask)) <= {0, 15}
        found += [page * PAGE + first * 2 + at for at, half in enumerate(unpack_fates(mask)) if half]
    assert found == list(offsets)


@given(_OFFSETS)
def test_no_stretch_begins_or_ends_with_bytes_it_does_not_mean(offsets: list[int]) -> None:
    for stretch in find_stretches(offsets):
        assert stretch.mask[0]
        assert stretch.mask[-1]


@pytest.mark.parametrize(
    ("first", "last", "mask"),
    [(4, 4, b"\xf0"), (5, 5, b"\x0f"), (4, 5, b"\xff"), (5, 6, b"\x0f\xf0"), (5, 8, b"\x0f\xff\xf0")],
)
def test_a_run_means_half_a_byte_at_its_edges(first: int, last: int, mask: bytes) -> None:
    assert find_stretches(range(first, last + 1)) == [(0, first // 2, mask)]


@pytest.mark.parametrize("offsets", [[3, 2], [1, 1], [1, 1, 3], [2, 1, 0], [PAGE, 1]])
def test_offsets_out_of_order_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        find_stretches(offsets)


def test_an_offset_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="below zero"):
        find_stretches([-1, 0])


@given(st.integers(0, 5 * PAGE), st.integers(0, 5 * PAGE))
def test_pages_cover_a_range_without_a_seam(first: int, last: int) -> None:
    covered = [page * PAGE + at for page, start, end in split_by_page(first, last) for at in (start, end)]
    if first > last:
        assert covered == []
        return
    assert (covered[0], covered[-1]) == (first, last)
    assert all(end + 1 == start for end, start in zip(covered[1:-1:2], covered[2::2], strict=True))


def test_fates_are_chosen_by_halves() -> None:
    assert choose_fates(b"\x12\x34\x56", b"\x0f\xff\xf0") == bytes([2, 3, 4, 5])


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_different_parts_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (ledger_key(*one) == ledger_key(*other)) == (one == other)


def test_an_ordinary_key_can_be_read() -> None:
    assert ledger_key("c", "bridge", "orders.handlers.charge", 3) == "ledger:c:bridge:orders.handlers.charge:3"
    assert ledger_key("a:b", "ü %") == "ledger:a%3Ab:%C3%BC%20%25"
