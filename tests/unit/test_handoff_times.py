"""When deliveries were handed off: which offsets a step of the index is still sure of, and how it is narrowed."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.ledger.fate_rules import Fate
from bridge.ledger.handoff_times import (
    STEP_SECONDS,
    HandoffStep,
    cut_out_ranges,
    narrow_steps,
    read_step_rests,
    read_steps,
)
from bridge.ledger.ledger_layout import Account

ACCOUNT = Account("charge", "orders", "id", 0)

ranges = st.builds(lambda start, size: range(start, start + size), st.integers(0, 60), st.integers(0, 12))


class Fates:
    """A ledger of which some offsets are handed."""

    def __init__(self, handed: Collection[int]) -> None:
        self._handed = sorted(handed)
        self.narrowed: list[Any] = []

    def runs(self, account: Account, wanted: Collection[Fate], first: int, last: int) -> Iterator[range]:
        assert wanted == {Fate.HANDED}
        return (range(offset, offset + 1) for offset in self._handed if first <= offset <= last)

    def index_key(self, account: Account) -> str:
        return "index"

    def run(self, doing: str, script: Any, keys: Sequence[str], args: Sequence[Any]) -> None:
        self.narrowed = list(args)


def looked(fates: Any, steps: Sequence[HandoffStep]) -> list[Any]:
    return list(read_step_rests(fates, ACCOUNT, steps))


@given(st.lists(ranges, max_size=6), st.lists(ranges, max_size=6))
def test_what_is_outside_is_in_the_runs_and_in_none_of_the_ranges(some: list[range], others: list[range]):
    runs, taken = [], -1
    for run in sorted(some, key=lambda run: run.start):
        if run.start > taken and run:
            runs.append(run)
            taken = run.stop
    found = [offset for part in cut_out_ranges(runs, others) for offset in part]
    assert found == [offset for run in runs for offset in run if not any(offset in other for other in others)]


def test_steps_are_read_oldest_first_with_their_times():
    assert read_steps({b"171": b"5-9", b"170": b"0-7"}) == [
        HandoffStep(1700, range(8)),
        HandoffStep(1710, range(5, 10)),
    ]
    assert HandoffStep(1700, range(8)).until == 1700 + STEP_SECONDS


def test_what_was_handed_again_counts_in_the_later_step():
    first, second = looked(Fates({2, 6}), [HandoffStep(0, range(8)), HandoffStep(10, range(5, 10))])
    assert ([list(run) for run in first.own], [list(run) for run in second.own]) == ([[2]], [[6]])
    assert [list(run) for run in first.handed] == [[2], [6]]


@given(st.sets(st.integers(0, 40)), st.lists(ranges.filter(len), min_size=1, max_size=5))
def test_every_handed_offset_of_the_index_is_some_steps_own_just_once(handed: set[int], spans: list[range]):
    steps = [HandoffStep(number * STEP_SECONDS, span) for number, span in enumerate(spans)]
    own = [offset for look in looked(Fates(handed), steps) for run in look.own for offset in run]
    assert sorted(own) == sorted(offset for offset in handed if any(offset in span for span in spans))


def test_a_step_that_is_over_is_narrowed_to_what_is_left_of_it_and_one_that_grows_is_not():
    fates: Any = Fates({3, 4, 22})
    steps = [HandoffStep(0, range(10)), HandoffStep(10, range(10, 20)), HandoffStep(20, range(20, 30))]
    narrow_steps(fates, ACCOUNT, looked(fates, steps), now=25)
    assert fates.narrowed == [0, "0-9", "3-4", 1, "10-19", ""]
