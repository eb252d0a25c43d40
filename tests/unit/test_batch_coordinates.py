"""What a task carries is found by who has a record's coordinates: in Flower's search, and in a batch's result."""

import pytest
from flower.utils.search import TaskSearchEngine  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.delivery_identity import LIST_LENGTH, batch_id, label_records, list_records
from tasks.execution.batch_progress import BatchEnds

OFFSETS = st.sets(st.integers(0, 10**7), min_size=1, max_size=500).map(sorted)


class Shown:
    """A task as Flower keeps it."""

    name, state, worker, kwargs, result = "charge", "SUCCESS", "worker", "{}", None

    def __init__(self, offsets: list[int]) -> None:
        self.uuid = batch_id("orders", 3, offsets, "charge")
        self.args = label_records("orders", 3, offsets)

        self._engine = TaskSearchEngine()
        self._engine.upsert(self)

    def is_found_by(self, query: str) -> bool:
        return bool(self._engine.search({self.uuid: self}, query).task_ids == [self.uuid])


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_flower_finds_a_few_by_the_coordinates_of_each(first, count):
    shown = Shown(list(range(first, first + count)))
    assert all(shown.is_found_by(f"orders-3-{offset}") for offset in range(first, first + count))


@given(st.integers(0, 10**6), st.integers(1, 500))
def test_flower_finds_many_by_the_hundred_of_each_or_by_its_coordinates(first, count):
    shown = Shown(list(range(first, first + count)))
    for offset in range(first, first + count):
        assert shown.is_found_by(f"orders-3-{offset} OR orders-3-{str(offset)[:-2]}xx")


@given(OFFSETS)
def test_a_label_is_short_however_far_apart_its_records_lie(offsets):
    assert len(label_records("orders", 3, offsets)) <= LIST_LENGTH + 80
    assert len(list_records("orders", 3, offsets)) <= LIST_LENGTH + 20


def test_what_there_is_no_room_for_is_counted():
    text = list_records("orders", 3, range(1000, 1100))
    assert text.startswith("orders-3-1000 orders-3-1001 ")
    named = text.count("orders-3-")
    assert text.endswith(f" and {100 - named} more")


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([7], "(orders-3-7)"),
        (range(1200, 1400), "(orders-3-1200..1399, 200 messages: orders-3-12xx orders-3-13xx)"),
        (range(50, 150), "(orders-3-50..149, 100 messages: orders-3-xx orders-3-1xx)"),
        (range(0, 10_000, 200), None),
    ],
)
def test_a_label_names_range_count_and_records_or_hundreds(offsets, expected):
    text = label_records("orders", 3, offsets)
    assert text == expected if expected else "50 messages: orders-3-xx orders-3-2xx orders-3-4xx" in text


def test_a_result_counts_all_and_names_those_that_did_not_end_well():
    ends = BatchEnds("orders", 3)
    assert str(ends) == ""
    for offset in range(197):
        ends.add("done", offset)
    assert str(ends) == "197 done"
    for what, offset in (("again", 201), ("dead", 234), ("again", 207), ("skipped", 9)):
        ends.add(what, offset)
    assert ends.counts == "197 done, 2 again, 1 dead, 1 skipped"
    assert ends.names == "again: orders-3-201 orders-3-207; dead: orders-3-234"
    assert str(ends) == f"{ends.counts}; {ends.names}"
