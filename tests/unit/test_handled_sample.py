"""Which records are read for a sample of what was handled."""

from bridge.deadletters.replay.handled_sample import (
    MOMENTS,
    MOST_PARTITIONS,
    choose_moments,
    choose_offsets,
    choose_partitions,
)
from bridge.kafka.partition_offsets import Extent


def extent(partition: int, first: int, end: int) -> Extent:
    return Extent("orders", partition, first, end, None)


def test_the_moments_go_from_the_oldest_letter_to_the_newest() -> None:
    assert choose_moments([5, 3, 3]) == [3, 5]
    chosen = choose_moments(range(100))
    assert (len(chosen), chosen[0], chosen[-1]) == (MOMENTS, 0, 99)
    assert choose_moments([]) == []


def test_all_partitions_are_read_alike_and_of_too_many_those_with_letters_and_some_others() -> None:
    few = [extent(0, 0, 9), extent(1, 4, 4), extent(2, 0, 9)]
    assert [each.partition for each in choose_partitions(few, frozenset({2}))] == [2, 0]
    many = choose_partitions([extent(number, 0, 9) for number in range(1000)], frozenset({777}))
    assert len({each.partition for each in many}) == MOST_PARTITIONS
    assert many[0].partition == 777


def test_the_offsets_begin_at_the_moment_and_end_with_the_log() -> None:
    extents = [extent(0, 0, 100), extent(1, 0, 100), extent(2, 50, 55)]
    found = choose_offsets(extents, {0: 40, 1: 100, 2: 50}, 10)
    assert found == {0: range(40, 50), 1: range(90, 100), 2: range(50, 55)}
