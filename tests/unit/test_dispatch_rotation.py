"""Where there is room for one partition's, each that has something has its turn."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from bridge.dispatch.dispatcher import PartitionRotation
from bridge.partitions.partition import Partition


class Some:
    """A partition with something ready, or nothing."""

    def __init__(self, number: int, ready: int = 1, waiting: int = 0) -> None:
        self.place = ("orders", number)
        self.ready, self.waiting = {"charge": ready}, {"charge": waiting}


def firsts(rotation: PartitionRotation, partitions: list[Any], times: int) -> list[int]:
    found = []
    for _ in range(times):
        found.append(rotation.order(partitions)[0].place[1])
    return found


def test_those_with_nothing_give_no_turn_to_their_neighbour() -> None:
    idle = [Some(number, ready=0) for number in range(1, 10)]
    assert firsts(PartitionRotation(), [Some(0), *idle, Some(10)], 6) == [0, 10, 0, 10, 0, 10]


def test_what_waits_and_is_not_ready_for_several_has_a_turn_too() -> None:
    assert firsts(PartitionRotation(), [Some(0, ready=0, waiting=3), Some(1)], 4) == [0, 1, 0, 1]
    assert PartitionRotation().order([cast(Partition, Some(0, ready=0))]) == []


@given(st.lists(st.sets(st.integers(0, 8), min_size=1), min_size=9, max_size=60))
def test_none_is_passed_over_twice_by_the_same(busy: list[set[int]]) -> None:
    """Who has something all the time is first at least once in as many turns as there are partitions."""
    rotation = PartitionRotation()
    always = set.intersection(*busy)
    found = [cast(Any, rotation.order([cast(Partition, Some(n)) for n in sorted(some)]))[0].place[1] for some in busy]
    for start in range(len(found) - 8):
        assert always <= {*found[start : start + 9]}
