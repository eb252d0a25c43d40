"""What a policy would have made of letters: counted as it would be, and honest about what nobody knows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.db.letter_rows import FailingLetter
from bridge.deadletters.inspection.policy_trial import (
    AT_ONCE,
    ENDLESS,
    HALTED,
    RETRIED,
    group_resolution_times,
    simulate_policy,
)
from tasks.policy.policy_override import RetryForecast

#: Retries at 10, 30 and 70 s after the first failure.
THREE = RetryForecast((10, 20, 40), "exhausted", True)
NONE = RetryForecast((), "permanent", True)


def failing(**other):
    found: dict[str, Any] = {
        "group": 1,
        "error_class": "E",
        "reason": "exhausted",
        "runs": 5,
        "first_failed_at": 0,
        "failed_at": 4_000,
    }
    return FailingLetter(**found | other)


@pytest.mark.parametrize(
    ("course", "end", "attempts"),
    [
        (THREE, RETRIED, 4),
        (NONE, AT_ONCE, 1),
        (RetryForecast((), "halt", True), HALTED, 1),
        (RetryForecast((1, 1), "endless", True), ENDLESS, 3),
        (RetryForecast((1,), "expired", True), RETRIED, 2),
    ],
)
def test_a_letter_ends_as_its_policy_says_after_as_many_attempts(course, end, attempts):
    found = simulate_policy([failing()], lambda error: course, {})
    assert found.after == {end: 1}
    assert (found.attempts_before, found.attempts_after, found.attempts_saved) == (5, attempts, attempts)


def test_what_was_is_told_beside_it():
    found = simulate_policy(
        [failing(runs=1, reason="permanent"), failing(runs=0), failing(runs=9)], lambda error: NONE, {}
    )
    assert found.before == {AT_ONCE: 2, RETRIED: 1}
    assert found.attempts_before == 10


@pytest.mark.parametrize("reason", ["poison", "undecodable", "unknown_handler"])
def test_what_no_policy_decides_on_is_not_judged(reason):
    found = simulate_policy([failing(reason=reason)], lambda error: NONE, {})
    assert (found.letters, found.not_judged) == (0, {reason: 1})


@pytest.mark.parametrize(
    ("gone", "saved", "attempts"),
    [
        # Before the letter failed last: it failed all the same.
        ([3_000], 0, 4),
        ([9_000], 1, 2),
        ([11_000], 1, 3),
        ([70_000], 1, 4),
        # After the last retry.
        ([71_000], 0, 4),
        ([3_000, 20_000], 1, 3),
    ],
)
def test_a_retry_that_comes_after_the_fault_was_gone_ends_well(gone, saved, attempts):
    found = simulate_policy([failing()], lambda error: THREE, {1: gone, 2: [5_000]})
    assert (found.saved, found.attempts_saved, found.attempts_after) == (saved, attempts, 4)
    assert found.evidence == (gone != [3_000])


def test_how_long_retries_go_on_is_told_of_half_and_of_all():
    letters = [failing(error_class=each) for each in "aab"]
    found = simulate_policy(letters, {"a": RetryForecast((1, 2), "exhausted", True), "b": THREE}.__getitem__, {})
    assert (found.retrying_for(0.5), found.retrying_for(1.0)) == (3, 70)
    assert simulate_policy([failing()], lambda error: NONE, {}).retrying_for(1.0) is None


def test_a_class_that_is_not_imported_is_said_with_how_many_it_is_about():
    found = simulate_policy([failing(), failing()], lambda error: RetryForecast((), "permanent", False), {})
    assert found.unknown == {"E": 2}


def test_successes_are_sorted_by_group():
    assert group_resolution_times([(1, 5), (2, 7), (1, 3)]) == {1: [3, 5], 2: [7]}


@given(
    st.lists(st.builds(failing, runs=st.integers(0, 20), failed_at=st.integers(0, 100_000), group=st.integers(1, 2))),
    st.lists(st.floats(0.1, 1e4), max_size=5),
    st.lists(st.integers(0, 200_000)),
)
def test_the_sums_are_of_the_letters(letters, waits, gone):
    found = simulate_policy(letters, lambda error: RetryForecast(tuple(waits), "exhausted", True), {1: sorted(gone)})
    assert found.letters == found.before.total() == found.after.total() == len(letters)
    assert found.saved <= found.evidence <= len(letters)
    assert len(letters) <= found.attempts_saved <= found.attempts_after or not letters
