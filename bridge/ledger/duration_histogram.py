"""Histograms of how long runs of a handler took, in buckets of fixed bounds, and their percentiles (pure)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

#: The upper bounds of the buckets in seconds: six for each factor of ten, from a millisecond to 1,000 seconds. The last
#: bucket has what took longer. They are part of the format in Redis: a change needs other keys.
DURATION_BOUNDS: Final[tuple[float, ...]] = (
    *(step * 10**power / 1e6 for power in range(3, 9) for step in (1, 1.5, 2, 3, 5, 7)),
    1_000.0,
)
BUCKETS: Final = len(DURATION_BOUNDS) + 1


def count_by_bucket(seconds: Sequence[float]) -> Mapping[int, int]:
    """Return how many of these durations each bucket has, without empty ones."""
    if not seconds:
        return {}
    # Where a handler takes less than a millisecond, looking up each of its runs would cost a hundredth of it.
    if max(seconds) <= DURATION_BOUNDS[0]:
        return {0: len(seconds)}
    return Counter(bisect_left(DURATION_BOUNDS, each) for each in seconds)


def find_percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the duration in seconds within which this share of the runs ended; `None` without runs.

    It lies in the bucket of the exact percentile, in proportion to the runs there. Of what took longer than the last
    bound, it is that bound.
    """
    total, before = sum(counts), 0
    for bucket, count in enumerate(counts):
        if count and before + count >= share * total:
            if bucket >= len(DURATION_BOUNDS):
                return DURATION_BOUNDS[-1]
            low, high = (DURATION_BOUNDS[bucket - 1] if bucket else 0.0), DURATION_BOUNDS[bucket]
            part = max(0.0, share * total - before) / count
            return float(low * (high / low) ** part) if low else high * part
        before += count
    return None


def add_up_buckets(histograms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the sum of several histograms."""
    return tuple(map(sum, zip(*histograms, strict=True))) if histograms else (0,) * BUCKETS
