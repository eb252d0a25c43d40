"""Failures grow if an hour has more than twice the usual number of the day before, and at least ten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model.failure_growth import HOUR, measure_growth, measure_rate

#: The 100th hour is under way.
NOW = 100 * HOUR + HOUR // 2


@pytest.mark.parametrize(
    ("hours", "since"),
    [
        ({}, None),
        ({100: 9}, None),
        ({100: 10}, 100),
        ({99: 10}, 99),
        ({98: 50}, None),
        (dict.fromkeys(range(70, 100), 10) | {100: 20}, None),
        (dict.fromkeys(range(70, 100), 10) | {100: 21}, 100),
        (dict.fromkeys(range(70, 99), 10) | {99: 30, 100: 1}, 99),
        ({98: 12, 99: 30, 100: 5}, 98),
        # One bad hour of the day before is not what was usual.
        ({90: 10_000, 100: 15}, 100),
    ],
)
def test_growth_is_told_with_the_hour_in_which_it_began(hours, since):
    found = measure_growth(hours, NOW)
    assert (None if found is None else found.since) == (None if since is None else since * HOUR)


def test_what_was_new_in_its_first_hour_grows_since_its_first_failure_and_not_since_the_hour_began():
    found = measure_growth({100: 20}, NOW, 100 * HOUR + 560_000)
    assert found is not None
    assert found.since == 100 * HOUR + 560_000
    again = measure_growth({100: 20}, NOW, 40 * HOUR)
    assert again is not None
    assert again.since == 100 * HOUR


def test_growth_counts_the_failures_since_then():
    found = measure_growth({98: 12, 99: 30, 100: 5}, NOW)
    assert found is not None
    assert found.failures == 47


@given(st.dictionaries(st.integers(0, 100), st.integers(0, 50)))
def test_growth_has_a_beginning_in_the_past_and_ten_failures_at_least(hours):
    found = measure_growth(hours, NOW)
    assert found is None or (found.since <= NOW and found.failures >= 10)


def test_rates_are_failures_an_hour_over_a_day_and_a_week():
    found = measure_rate({100: 24, 80: 24, 76: 1_000, 0: 10_000}, NOW)
    assert found.day == 2
    assert found.week == (24 + 24 + 1_000 + 10_000) / 168
