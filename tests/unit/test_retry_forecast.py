"""What a policy makes of a delivery that always fails."""

import gc

import pytest
from celery.exceptions import Ignore, Reject
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.failure import kind_name
from tasks.errors import DeadLetter, RetryLater, StopConsuming
from tasks.policy.policy_override import FORECAST_LIMIT, RetryForecast, forecast_retries
from tasks.policy.retry_policy import RetryPolicy


class Away(ConnectionError):
    """An error of a user's own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port}")


AWAY = kind_name(Away)
STEADY = RetryPolicy(jitter=False)


@pytest.mark.parametrize(
    ("policy", "error", "waits", "end"),
    [
        (RetryPolicy(delays=(300, 1800), jitter=False), AWAY, (300, 1800), "exhausted"),
        (RetryPolicy(max_retries=4, backoff_max=3, jitter=False), AWAY, (1, 2, 3, 3), "exhausted"),
        (RetryPolicy(max_retries=3), AWAY, (0.5, 1, 2), "exhausted"),
        (RetryPolicy(max_retries=3, backoff=4, backoff_multiplier=1.5, jitter=False), AWAY, (4, 6, 9), "exhausted"),
        (RetryPolicy(max_retries=3, backoff=4, backoff_multiplier=1), AWAY, (2, 2, 2), "exhausted"),
        (RetryPolicy(max_retries=2, fixed_delay=60), AWAY, (60, 60), "exhausted"),
        (RetryPolicy(max_retries=0), AWAY, (), "exhausted"),
        (RetryPolicy(delays=(100, 100), jitter=True), AWAY, (50, 50), "exhausted"),
        (RetryPolicy(max_retries=None, fixed_delay=60, give_up_after=150), AWAY, (60, 60), "expired"),
        (RetryPolicy(dead_letter_for=(OSError,)), AWAY, (), "permanent"),
        (RetryPolicy(dead_letter_for=(AWAY,)), AWAY, (), "permanent"),
        (RetryPolicy(stop_for=(ConnectionError,)), AWAY, (), "halt"),
        (RetryPolicy(autoretry_for=(KeyError,)), AWAY, (), "permanent"),
        (STEADY, kind_name(DeadLetter), (), "permanent"),
        (STEADY, kind_name(StopConsuming), (), "halt"),
        (STEADY, kind_name(RetryLater), (), "asked"),
        (STEADY, kind_name(Ignore), (), "done"),
        (STEADY, kind_name(Reject), (), "asked"),
        (STEADY, "UnicodeDecodeError", STEADY.max_retries, "exhausted"),
    ],
)
def test_an_error_that_comes_every_time_takes_the_policys_way(policy, error, waits, end):
    found = forecast_retries(policy, error)
    assert found.known
    assert found.end == end
    assert len(found.waits) == waits if isinstance(waits, int) else found.waits == waits


def test_a_class_that_is_not_imported_is_known_by_its_name_alone():
    assert forecast_retries(
        RetryPolicy(dead_letter_for=("gone.errors.Declined",)), "gone.errors.Declined"
    ) == RetryForecast((), "permanent", False)
    # What it was derived from nobody knows: an Exception like any.
    assert forecast_retries(
        RetryPolicy(dead_letter_for=(OSError,), max_retries=1, jitter=False), "gone.errors.Away"
    ).waits == (1,)
    gc.collect()


def test_a_retry_without_an_end_has_none():
    found = forecast_retries(RetryPolicy(max_retries=None), AWAY)
    assert (len(found.waits), found.end) == (FORECAST_LIMIT, "endless")


def test_a_wait_is_as_long_as_its_retry_topic_holds_it():
    policy = RetryPolicy(max_retries=3, fixed_delay=50, give_up_after=250)
    assert forecast_retries(policy, AWAY, real=lambda wait: 100.0) == RetryForecast((100, 100), "expired", True)


@given(st.integers(0, 50), st.floats(0, 1e6), st.booleans())
def test_a_course_never_outlasts_its_limits(retries: int, limit: float, jitter: bool):
    found = forecast_retries(RetryPolicy(max_retries=retries, jitter=jitter, give_up_after=limit), AWAY)
    assert len(found.waits) <= retries
    assert sum(found.waits) <= limit
