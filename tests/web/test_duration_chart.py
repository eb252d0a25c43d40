"""What is promised of the pictures of durations: percentiles on a logarithmic axis, gaps as gaps, and all in words."""

import re

import pytest

from bridge.console.pages.chart_options import HOUR, QUARTER, WEEK
from bridge.console.pages.duration_chart import build_duration_chart, build_histogram, format_took, name_bucket
from bridge.ledger.duration_histogram import BUCKETS, DURATION_BOUNDS, count_by_bucket

#: 02:00 of 21 November 2026.
FIRST = 1_795_226_400_000


def histogram(*seconds):
    """The counts of all buckets."""
    found = count_by_bucket(seconds)
    return tuple(found.get(bucket, 0) for bucket in range(BUCKETS))


NONE = histogram()


def test_a_minute_says_its_runs_and_percentiles_and_one_without_runs_has_none():
    found = build_duration_chart([NONE, histogram(*[0.02] * 98, 0.3, 0.3), *[NONE] * 13], FIRST, QUARTER)
    assert found.said[0] == "02:00 UTC: 0 runs"
    assert found.said[1].startswith("02:01 UTC: 100 runs, p50 17 ms, p95 20 ms, p99 2")
    assert found.sentence.startswith("100 runs: half took about 17 ms or less, 95 % 20 ms, 99 % 2")
    assert [row[:3] for row in found.rows] == [("02:01 UTC", "100", "17 ms")]
    assert [line.path.count("M") for line in found.lines] == [1, 1, 1]


def test_lines_go_up_by_the_factor_and_not_by_the_amount():
    found = build_duration_chart([histogram(0.009), histogram(0.09), histogram(0.9)], FIRST, HOUR)
    heights = [float(y) for y in re.findall(r"(?:M\d+ |V)([\d.]+)H", found.lines[0].path)]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert [words for _, words in found.axis] == ["1 ms", "10 ms", "100 ms", "1 s"]
    assert [place for place, _ in found.axis] == [100, 66.7, 33.3, 0]
    assert all(0 <= y <= 100 for y in heights)


def test_without_a_run_it_says_so():
    found = build_duration_chart([NONE] * 168, FIRST, WEEK)
    assert (found.sentence, found.rows, found.runs) == ("No run ended in this time.", [], 0)
    assert [line.path for line in found.lines] == ["", "", ""]
    assert build_histogram([NONE, NONE]) is None


def test_a_histogram_has_a_bar_for_each_bucket_between_the_shortest_and_the_longest_run():
    found = build_histogram([histogram(0.06), histogram(0.06, 0.06, 0.2)])
    assert found is not None
    assert found.rows == [("50 to 70 ms", "3", "75 %"), ("150 to 200 ms", "1", "25 %")]
    assert found.said[1] == "50 to 70 ms: 3 runs, 75 %"
    assert found.said[2] == "70 to 100 ms: 0 runs, 0 %"
    assert found.most == 3


@pytest.mark.parametrize("extreme", [0.0001, 5_000.0])
def test_the_shortest_and_the_longest_runs_are_drawn_too(extreme):
    found = build_duration_chart([histogram(extreme)], FIRST, QUARTER)
    bars = build_histogram([histogram(extreme)])
    assert bars is not None
    assert found.runs == bars.most == 1
    assert all(0 <= place <= 100 for place, _ in found.axis)


def test_durations_have_two_digits_and_a_unit():
    assert [format_took(each) for each in (0.0004, 0.0123, 0.127, 0.9996, 1.27, 119, 1000)] == [
        *("0.4 ms", "12 ms", "130 ms", "1 s", "1.3 s", "120 s", "17 min"),
    ]
    assert name_bucket(0) == "at most 1 ms"
    assert name_bucket(BUCKETS - 1) == "over 17 min"
    assert len({name_bucket(each) for each in range(BUCKETS)}) == BUCKETS == len(DURATION_BOUNDS) + 1
