"""What is promised of durations: each is in the bucket of its bounds, and a percentile in that of the exact one."""

from bisect import bisect_left
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge.ledger.duration_histogram import BUCKETS, DURATION_BOUNDS, add_up_buckets, count_by_bucket, find_percentile

DURATIONS = some.lists(some.floats(min_value=0, max_value=5_000), min_size=1, max_size=200)


def histogram(seconds: list[float]) -> list[int]:
    """The counts of all buckets."""
    found = count_by_bucket(seconds)
    return [found.get(bucket, 0) for bucket in range(BUCKETS)]


def test_bounds_are_six_for_each_factor_of_ten_from_a_millisecond_to_a_thousand_seconds() -> None:
    assert [*DURATION_BOUNDS] == sorted(set(DURATION_BOUNDS))
    assert (DURATION_BOUNDS[0], DURATION_BOUNDS[6], DURATION_BOUNDS[-1]) == (0.001, 0.01, 1_000.0)
    assert max(high / low for low, high in pairwise(DURATION_BOUNDS)) < 1.67


@given(DURATIONS)
def test_each_run_is_in_one_bucket_and_none_is_left_out(seconds: list[float]) -> None:
    expected = [0] * BUCKETS
    for each in seconds:
        expected[bisect_left(DURATION_BOUNDS, each)] += 1
    assert histogram(seconds) == expected


@given(DURATIONS, some.sampled_from((0.5, 0.95, 0.99, 1.0)))
def test_a_percentile_is_in_the_bucket_of_the_exact_one(seconds: list[float], share: float) -> None:
    exact = sorted(seconds)[ceil(share * len(seconds)) - 1]
    found = find_percentile(histogram(seconds), share)
    assert found is not None
    bucket = bisect_left(DURATION_BOUNDS, exact)
    low = DURATION_BOUNDS[bucket - 1] if bucket else 0.0
    high = DURATION_BOUNDS[min(bucket, len(DURATION_BOUNDS) - 1)]
    assert low - 1e-9 <= found <= high * (1 + 1e-9)


def test_percentiles_of_known_runs() -> None:
    of_a_hundred = histogram([0.02] * 90 + [0.3] * 9 + [60.0])
    assert find_percentile(of_a_hundred, 0.5) == pytest.approx(0.0176, rel=0.02)
    assert find_percentile(of_a_hundred, 0.95) == pytest.approx(0.265, rel=0.06)
    assert find_percentile(of_a_hundred, 1.0) == pytest.approx(70, rel=1e-9)
    assert find_percentile(histogram([4_000.0]), 0.5) == 1_000
    assert find_percentile([0] * BUCKETS, 0.5) is None


def test_histograms_are_added_up_bucket_by_bucket() -> None:
    assert add_up_buckets([histogram([0.02]), histogram([0.02, 60.0])]) == tuple(histogram([0.02, 0.02, 60.0]))
    assert add_up_buckets([]) == (0,) * BUCKETS
