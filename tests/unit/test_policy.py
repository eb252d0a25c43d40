"""(attempt, error) → what to do."""

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Ignore, Reject
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.delivery import Message
from tasks.errors import DeadLetter, RetryAsked, RetryLater, StopConsuming, Undecodable
from tasks.policy.failure_decision import (
    EXHAUSTED,
    EXPIRED,
    PERMANENT,
    UNDECODABLE,
    DeadLetterDelivery,
    DropDelivery,
    HaltTopic,
    RetryDelivery,
    decide_failure,
)
from tasks.policy.retry_policy import RetryPolicy


class CardDeclined(ValueError):
    pass


exact = RetryPolicy(jitter=False)
narrow = RetryPolicy(autoretry_for=(ConnectionError,), jitter=False)
spared = RetryPolicy(dont_autoretry_for=(KeyError,), dead_letter_for=(CardDeclined,), jitter=False)
stopping = RetryPolicy(stop_for=(OSError,), dead_letter_for=(ConnectionError,), jitter=False)
forever = RetryPolicy(max_retries=None, jitter=False)
never = RetryPolicy(max_retries=0)
listed = RetryPolicy(delays=(3, 7), jitter=False)
budgeted = RetryPolicy(give_up_after=10, jitter=False)


@pytest.mark.parametrize(
    ("policy", "error", "failures", "age", "decision"),
    [
        (exact, ConnectionError(), 0, 0, RetryDelivery(1)),
        (exact, ConnectionError(), 1, 0, RetryDelivery(2)),
        (exact, ConnectionError(), 4, 0, RetryDelivery(16)),
        (exact, ConnectionError(), 11, 0, RetryDelivery(600)),
        (exact, ConnectionError(), 12, 0, DeadLetterDelivery(EXHAUSTED)),
        (exact, ConnectionError(), 99, 0, DeadLetterDelivery(EXHAUSTED)),
        (exact, MemoryError(), 0, 0, RetryDelivery(1)),
        (exact, SoftTimeLimitExceeded(), 0, 0, RetryDelivery(1)),
        (exact, SystemExit(3), 0, 0, RetryDelivery(1)),
        (exact, GeneratorExit(), 12, 0, DeadLetterDelivery(EXHAUSTED)),
        (exact, DeadLetter("no"), 0, 0, DeadLetterDelivery(PERMANENT)),
        (exact, Undecodable("no"), 0, 0, DeadLetterDelivery(UNDECODABLE)),
        (exact, StopConsuming("no"), 99, 0, HaltTopic()),
        (exact, RetryLater(7), 99, 0, RetryDelivery(7.0, spent=False)),
        (exact, Ignore(), 0, 0, DropDelivery()),
        (exact, Reject("no"), 0, 0, DeadLetterDelivery(PERMANENT)),
        (exact, Reject("no", requeue=True), 3, 0, RetryDelivery(1, spent=False)),
        (exact, RetryAsked(9, 2, None), 1, 0, RetryDelivery(9)),
        (exact, RetryAsked(9, 2, None), 2, 0, DeadLetterDelivery(EXHAUSTED)),
        (exact, RetryAsked(9, None, None), 99, 0, RetryDelivery(9)),
        (narrow, ConnectionRefusedError(), 0, 0, RetryDelivery(1)),
        (narrow, ValueError(), 0, 0, DeadLetterDelivery(PERMANENT)),
        (narrow, SystemExit(), 0, 0, RetryDelivery(1)),
        (spared, KeyError(), 0, 0, DeadLetterDelivery(PERMANENT)),
        (spared, CardDeclined(), 0, 0, DeadLetterDelivery(PERMANENT)),
        (spared, ValueError(), 0, 0, RetryDelivery(1)),
        (stopping, ConnectionError(), 0, 0, HaltTopic()),
        (stopping, OSError(), 99, 0, HaltTopic()),
        (forever, ConnectionError(), 10_000, 0, RetryDelivery(600)),
        (never, ConnectionError(), 0, 0, DeadLetterDelivery(EXHAUSTED)),
        (listed, ConnectionError(), 0, 0, RetryDelivery(3)),
        (listed, ConnectionError(), 1, 0, RetryDelivery(7)),
        (listed, ConnectionError(), 2, 0, DeadLetterDelivery(EXHAUSTED)),
        (budgeted, ConnectionError(), 0, 9, RetryDelivery(1)),
        (budgeted, ConnectionError(), 0, 9.5, DeadLetterDelivery(EXPIRED)),
        (budgeted, RetryLater(11), 0, 0, DeadLetterDelivery(EXPIRED)),
        (budgeted, RetryAsked(11, None, None), 0, 0, DeadLetterDelivery(EXPIRED)),
        (budgeted, ConnectionError(), 12, 0, DeadLetterDelivery(EXHAUSTED)),
        (RetryPolicy(fixed_delay=180), ConnectionError(), 3, 0, RetryDelivery(180)),
        (RetryPolicy(backoff=3, jitter=False), ConnectionError(), 2, 0, RetryDelivery(12)),
    ],
)
def test_each_error_has_its_decision(policy, error, failures, age, decision):
    assert decide_failure(policy, error, failures, age) == decision


@pytest.mark.parametrize(
    ("policy", "error", "decision"),
    [
        (exact, ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (exact, MemoryError(), DeadLetterDelivery(EXHAUSTED)),
        (exact, SoftTimeLimitExceeded(), DeadLetterDelivery(EXHAUSTED)),
        (exact, SystemExit(3), DeadLetterDelivery(EXHAUSTED)),
        (exact, RetryAsked(9, 2, None), DeadLetterDelivery(EXHAUSTED)),
        (exact, RetryAsked(9, None, None), DeadLetterDelivery(EXHAUSTED)),
        (forever, ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (never, ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (listed, ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (budgeted, ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (RetryPolicy(retry_when=lambda *_: 300), ConnectionError(), DeadLetterDelivery(EXHAUSTED)),
        (
            RetryPolicy(retry_when=lambda *_: DeadLetter("gone")),
            ConnectionError(),
            DeadLetterDelivery(PERMANENT, "gone"),
        ),
        (spared, CardDeclined(), DeadLetterDelivery(PERMANENT)),
        (exact, DeadLetter("no"), DeadLetterDelivery(PERMANENT)),
        (exact, Undecodable("no"), DeadLetterDelivery(UNDECODABLE)),
        (exact, Reject("no"), DeadLetterDelivery(PERMANENT)),
        (exact, Reject("no", requeue=True), RetryDelivery(1, spent=False)),
        (exact, RetryLater(7), RetryDelivery(7.0, spent=False)),
        (budgeted, RetryLater(11), DeadLetterDelivery(EXPIRED)),
        (exact, Ignore(), DropDelivery()),
        (exact, StopConsuming("no"), HaltTopic()),
        (stopping, OSError(), HaltTopic()),
    ],
)
def test_what_has_one_attempt_dies_of_what_a_retry_may_cure_and_else_ends_as_ever(policy, error, decision):
    assert decide_failure(policy, error, 0, message=Message("orders", 0, 1), once=True) == decision


policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 20),
    delays=st.none() | st.lists(st.floats(0, 10_000), max_size=8).map(tuple),
    fixed_delay=st.none() | st.floats(0, 10_000),
    backoff=st.floats(0, 100),
    backoff_multiplier=st.just(2.0) | st.floats(1, 1e300) | st.integers(1, 10**300),
    backoff_max=st.integers(0, 10_000),
    jitter=st.booleans(),
    give_up_after=st.none() | st.floats(0, 10_000),
)


@given(policies)
def test_a_delivery_that_always_fails_ends_after_as_many_retries_as_were_promised(policy):
    failures, age = 0, 0.0
    while isinstance(decision := decide_failure(policy, ConnectionError(), failures, age), RetryDelivery):
        assert decision.spent
        failures, age = failures + 1, age + decision.delay
        assert failures <= (policy.retries or 0)
    assert decision == DeadLetterDelivery(EXHAUSTED) or policy.give_up_after is not None
    if decision == DeadLetterDelivery(EXHAUSTED):
        assert failures == policy.retries


@given(policies, st.integers(0, 99), st.floats(0, 20_000), st.sampled_from([OSError(), DeadLetter(), KeyError()]))
def test_what_has_one_attempt_never_runs_again_for_a_failure(policy, failures, age, error):
    assert isinstance(decide_failure(policy, error, failures, age, once=True), DeadLetterDelivery)


@given(policies, st.floats(0, 20_000), st.floats(0, 20_000), st.booleans())
def test_no_retry_starts_after_the_time_budget(policy, age, delay, asked):
    error = RetryLater(delay) if asked else ConnectionError()
    decision = decide_failure(policy, error, 0, age)
    if policy.give_up_after is not None and isinstance(decision, RetryDelivery):
        assert age + decision.delay <= policy.give_up_after


@pytest.mark.parametrize(
    ("policy", "longest"),
    [
        (RetryPolicy(), 600),
        (RetryPolicy(max_retries=3), 4),
        (RetryPolicy(max_retries=0), 0),
        (RetryPolicy(max_retries=None, backoff_max=7_200), 7_200),
        (RetryPolicy(max_retries=2, backoff=90), 180),
        (RetryPolicy(max_retries=3, backoff=4, backoff_multiplier=1.5), 9),
        (RetryPolicy(max_retries=101, backoff_multiplier=1.05), pytest.approx(131.5, abs=0.1)),
        (RetryPolicy(max_retries=None, backoff_multiplier=1.05), 600),
        (RetryPolicy(max_retries=None, backoff=7, backoff_multiplier=1), 7),
        (RetryPolicy(max_retries=9, backoff_multiplier=1e300), 600),
        (RetryPolicy(delays=(1, 3_600)), 3_600),
        (RetryPolicy(delays=()), 0),
        (RetryPolicy(fixed_delay=300, max_retries=1), 300),
    ],
)
def test_the_longest_delay_is_one_that_the_retries_reach(policy: RetryPolicy, longest: float):
    assert policy.longest_delay == longest


def test_a_retry_that_a_handler_asks_for_after_the_listed_ones_waits_as_long_as_the_last_of_them():
    assert [listed.delay(failures) for failures in range(4)] == [3, 7, 7, 7]


@given(policies, st.integers(0, 10_000))
def test_no_delay_is_longer_than_the_longest_and_none_is_negative(policy, failures):
    if policy.retries is None or failures < policy.retries:
        assert 0 <= policy.delay(failures) <= policy.longest_delay


@given(st.integers(0, 40), st.integers(1, 60), st.integers(1, 4_000))
def test_without_jitter_each_delay_is_twice_the_one_before_up_to_the_longest(failures, backoff, most):
    policy = RetryPolicy(backoff=backoff, backoff_max=most, jitter=False)
    assert policy.delay(failures) == min(most, backoff * 2**failures)


@pytest.mark.parametrize(
    ("backoff", "multiplier", "delays"),
    [
        (4, 1.5, [4, 6, 9, 13.5, 20]),
        (5, 1, [5, 5, 5, 5, 5]),
        (1, 3, [1, 3, 9, 20, 20]),
        (7, 1e300, [7, 20, 20, 20, 20]),
        (7, 10**300, [7, 20, 20, 20, 20]),
    ],
)
def test_each_delay_is_the_one_before_times_the_multiplier_up_to_the_longest(backoff, multiplier, delays):
    policy = RetryPolicy(backoff=backoff, backoff_multiplier=multiplier, backoff_max=20, jitter=False)
    assert [policy.delay(failures) for failures in range(5)] == delays


@given(st.floats(1, 1e300), st.integers(0, 10**9), st.booleans())
def test_no_number_of_failures_is_too_large_for_a_multiplier(multiplier, failures, jitter):
    policy = RetryPolicy(max_retries=None, backoff_multiplier=multiplier, jitter=jitter)
    assert 0 <= policy.delay(failures) <= 600


def test_jitter_draws_between_nothing_and_the_backoff_also_with_a_multiplier():
    drawn = {RetryPolicy(backoff=8, backoff_multiplier=1.25).delay(1) for _ in range(500)}
    assert 0 <= min(drawn) <= 2
    assert 8.5 <= max(drawn) <= 10


def test_jitter_draws_between_nothing_and_the_backoff():
    drawn = {RetryPolicy(backoff=8).delay(1) for _ in range(500)}
    assert min(drawn) <= 2
    assert 14 <= max(drawn) <= 16


@given(policies, st.integers(0, 100), st.floats(0, 20_000))
def test_what_a_retry_cannot_cure_dies_at_once_whatever_the_options(policy, failures, age):
    assert decide_failure(policy, DeadLetter(), failures, age) == DeadLetterDelivery(PERMANENT)
    assert decide_failure(policy, Undecodable(), failures, age) == DeadLetterDelivery(UNDECODABLE)


@given(policies, st.integers(0, 100), st.floats(0, 20_000))
def test_a_message_whose_handler_stops_is_kept_whatever_the_options(policy, failures, age):
    assert isinstance(decide_failure(policy, StopConsuming(), failures, age), HaltTopic)


@pytest.mark.parametrize("delay", [-1, float("nan"), -0.001, 1e12, float("inf"), 366 * 86_400, "30", None, True])
def test_retry_later_takes_no_delay_that_is_none(delay):
    with pytest.raises(ValueError, match=r"takes seconds, from 0 to 31,536,000 \(a year\)"):
        RetryLater(delay)


def test_retry_later_reads_well():
    assert str(RetryLater(2.5, "busy")) == "again in 2.5 s: busy"
    assert str(RetryLater(2)) == "again in 2 s"
