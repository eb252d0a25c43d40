"""`retry_when`: what a function of the user's may answer, and what becomes of an answer that cannot be taken."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject, WorkerShutdown, WorkerTerminate
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats.delivery import Attempts, Message
from tasks.errors import DeadLetter, HandlerError, RetryAsked, RetryLater, StopConsuming, Undecodable
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
from tasks.policy.retry_policy import RetryPolicy, make_policy
from tasks.policy.retry_when_function import ask_retry_when, check_retry_when, function_name

ORDER = Message("orders", 3, 1234, value=b'{"type": "refund"}', headers=(("x-test", b"1"),))


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class Gone(DeadLetter):
    """A class of the user's own."""


class Unspeakable(DeadLetter):
    def __str__(self) -> str:
        raise KeyError("no words")


def by_status(message: Message, error: Exception, attempts: Attempts) -> float | DeadLetter | None:
    if message.header("x-test"):
        return DeadLetter("a test's message")
    if isinstance(error, HttpError) and error.status == 429:
        return 60
    if isinstance(error, HttpError) and error.status < 500:
        return DeadLetter(f"HTTP {error.status}")
    return 10 * 2**attempts.failed if message.value and json.loads(message.value)["type"] == "refund" else None


def answering(answer: Any) -> Callable[..., Any]:
    return lambda message, error, attempts: answer


def raising(error: BaseException) -> Callable[..., Any]:
    def raises(message: Message, failure: Exception, attempts: Attempts) -> None:
        raise error

    return raises


def decided(
    policy: RetryPolicy, error: BaseException, failures: int = 0, age: float = 0, told: list[str] | None = None
) -> Any:
    faults = [] if told is None else told
    return decide_failure(
        policy, error, failures, age, message=replace(ORDER, attempts=Attempts(failures)), report=faults.append
    )


@pytest.mark.parametrize(
    ("answer", "failures", "age", "decision"),
    [
        (7, 0, 0, RetryDelivery(7)),
        (0, 0, 0, RetryDelivery(0)),
        (0.5, 3, 0, RetryDelivery(0.5)),
        (7, 4, 0, RetryDelivery(7)),
        (7, 5, 0, DeadLetterDelivery(EXHAUSTED)),
        (7, 99, 0, DeadLetterDelivery(EXHAUSTED)),
        (7, 0, 93, RetryDelivery(7)),
        (7, 0, 94, DeadLetterDelivery(EXPIRED)),
        (365 * 86_400, 0, 0, DeadLetterDelivery(EXPIRED)),
        (DeadLetter, 0, 0, DeadLetterDelivery(PERMANENT)),
        (DeadLetter("why"), 99, 0, DeadLetterDelivery(PERMANENT, "why")),
        (Gone, 0, 0, DeadLetterDelivery(PERMANENT)),
        (Gone("why"), 0, 99, DeadLetterDelivery(PERMANENT, "why")),
        (None, 0, 0, RetryDelivery(4)),
        (None, 5, 0, DeadLetterDelivery(EXHAUSTED)),
    ],
)
def test_an_answer_becomes_what_it_says_within_the_retries_and_the_time(answer, failures, age, decision):
    policy = RetryPolicy(retry_when=answering(answer), max_retries=5, backoff=4, jitter=False, give_up_after=100)
    told: list[str] = []
    assert decided(policy, ConnectionError(), failures, age, told) == decision
    assert told == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, "its answer was a bool"),
        (False, "its answer was a bool"),
        (float("nan"), "takes seconds, from 0 to 31,536,000 (a year); it was given nan"),
        (float("inf"), "it was given inf"),
        (-1, "it was given -1"),
        (-0.001, "it was given -0.001"),
        (366 * 86_400, "it was given 31622400"),
        (10**400, "takes seconds"),
        ("dead letter", "answers with seconds, DeadLetter or None; its answer was a str"),
        (timedelta(seconds=5), "its answer was a timedelta"),
        (Decimal(5), "its answer was a Decimal"),
        (RetryLater(5), "its answer was a RetryLater"),
        (ValueError, "its answer was a type"),
        ((5,), "its answer was a tuple"),
    ],
)
def test_an_answer_that_is_none_is_told_and_the_options_decide(answer, words):
    told: list[str] = []
    policy = RetryPolicy(retry_when=answering(answer), max_retries=1, jitter=False)
    assert decided(policy, ConnectionError(), 0, told=told) == RetryDelivery(1)
    assert decided(policy, ConnectionError(), 1) == DeadLetterDelivery(EXHAUSTED)
    assert len(told) == 1
    assert words in told[0]
    assert "answering.<locals>.<lambda>" in told[0]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("division by zero"), SystemExit(3), MemoryError(), GeneratorExit(), DeadLetter("no")]
)
def test_a_function_that_raises_is_told_and_the_options_decide(error):
    told: list[str] = []
    policy = RetryPolicy(retry_when=raising(error), max_retries=1, dead_letter_for=(KeyError,), jitter=False)
    assert decided(policy, ConnectionError(), 0, told=told) == RetryDelivery(1)
    assert decided(policy, ConnectionError(), 1) == DeadLetterDelivery(EXHAUSTED)
    assert decided(policy, KeyError(), 0) == DeadLetterDelivery(PERMANENT)
    assert "raised " in told[0]
    assert type(error).__name__ in told[0]


@pytest.mark.parametrize("error", [WorkerShutdown(0), WorkerTerminate(0)])
def test_a_worker_that_ends_while_the_function_runs_ends(error):
    with pytest.raises(type(error)):
        decided(RetryPolicy(retry_when=raising(error)), ConnectionError())


def test_an_answer_that_is_awaited_by_nobody_is_no_answer():
    async def later(message, error, attempts):
        return 5

    answer = ask_retry_when(lambda *given: later(*given), ORDER, KeyError())  # type: ignore[arg-type]
    assert "its answer was a coroutine" in answer.fault


def test_a_dead_letter_without_words_of_its_own_is_one_all_the_same():
    assert "raised KeyError" in (ask_retry_when(answering(Unspeakable()), ORDER, KeyError()).dead or "")


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (DeadLetter("the handler's"), DeadLetterDelivery(PERMANENT)),
        (Undecodable("no"), DeadLetterDelivery(UNDECODABLE)),
        (StopConsuming("stop"), HaltTopic()),
        (RetryLater(9), RetryDelivery(9, spent=False)),
        (RetryAsked(9, 2, None), RetryDelivery(9)),
        (Ignore(), DropDelivery()),
        (Reject("no"), DeadLetterDelivery(PERMANENT)),
    ],
)
def test_what_the_handler_itself_says_is_not_asked_about(error, decision):
    policy = RetryPolicy(retry_when=raising(AssertionError("asked")))
    told: list[str] = []
    assert decided(policy, error, told=told) == decision
    assert told == []


@pytest.mark.parametrize("error", [KeyError(), OSError(), ValueError(), SystemExit(1)])
def test_the_function_is_asked_before_the_lists(error):
    lists = {"dead_letter_for": (KeyError,), "stop_for": (OSError,), "autoretry_for": (ConnectionError,)}
    assert decided(RetryPolicy(retry_when=answering(3), **lists), error) == RetryDelivery(3)  # type: ignore[arg-type]
    assert decided(RetryPolicy(retry_when=answering(DeadLetter), **lists), error) == DeadLetterDelivery(PERMANENT)  # type: ignore[arg-type]


def test_the_function_sees_message_error_and_attempts():
    seen: list[Any] = []
    policy = RetryPolicy(retry_when=lambda *given: seen.append(given), jitter=False)
    error = HttpError(503)
    counts = Attempts(failed=2, lost=1, postponed=4)
    assert decide_failure(policy, error, 2, message=replace(ORDER, attempts=counts)) == RetryDelivery(4)
    assert seen == [(ORDER, error, counts)]


@pytest.mark.parametrize(
    ("headers", "status", "failed", "decision"),
    [
        ((("x-test", b"1"),), 503, 0, DeadLetterDelivery(PERMANENT, "a test's message")),
        ((), 429, 0, RetryDelivery(60)),
        ((), 404, 0, DeadLetterDelivery(PERMANENT, "HTTP 404")),
        ((), 503, 0, RetryDelivery(10)),
        ((), 503, 3, RetryDelivery(80)),
    ],
)
def test_a_status_a_header_the_value_and_the_attempts_can_decide(headers, status, failed, decision):
    message = Message("orders", 0, 0, value=ORDER.value, headers=headers, attempts=Attempts(failed))
    found = decide_failure(RetryPolicy(retry_when=by_status), HttpError(status), failed, message=message)
    assert found == decision


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.timedeltas(),
    st.decimals(allow_nan=True),
    st.just(DeadLetter),
    st.builds(DeadLetter, st.text()),
    st.lists(st.integers()),
    st.just(object),
)


@given(anything, st.integers(0, 30), st.none() | st.integers(0, 20))
def test_whatever_the_function_answers_a_failure_has_an_end(answer, failures, most):
    policy = RetryPolicy(retry_when=answering(answer), max_retries=most)
    told: list[str] = []
    decision = decided(policy, ConnectionError(), failures, told=told)
    if isinstance(decision, RetryDelivery):
        assert decision.spent
        assert 0 <= decision.delay <= 365 * 86_400
        assert most is None or failures < most
    else:
        assert isinstance(decision, DeadLetterDelivery)
        assert decision.reason in (EXHAUSTED, PERMANENT)
    if told:
        assert type(decision) is type(decided(RetryPolicy(max_retries=most), ConnectionError(), failures))


class Callable3:
    def __call__(self, message: Message, error: Exception, attempts: Attempts) -> None: ...


class Later:
    async def __call__(self, message: Message, error: Exception, attempts: Attempts) -> None: ...


async def later(message, error, attempts): ...
def yielding(message, error, attempts):
    yield 1


def two(message, error): ...
def four(message, error, attempts, more): ...
def by_name(message, error, *, attempts): ...
def with_more(message, error, attempts, more=1): ...
def any_number(*given): ...


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, "takes a function of (message, error, attempts); it was given 5"),
        ("by_status", "takes a function"),
        (Callable3, "takes a function"),
        (DeadLetter, "takes a function"),
        (later, "is async, or yields"),
        (yielding, "is async, or yields"),
        (Later(), "is async, or yields"),
        (functools.partial(later), "is async, or yields"),
        (two, "two(message, error) is called with (message, error, attempts)"),
        (four, "is called with"),
        (by_name, "is called with"),
    ],
)
def test_what_can_never_answer_is_refused_when_the_handler_is_declared(given, words):
    with pytest.raises(HandlerError) as refused:
        make_policy("orders.charge", {"retry_when": given})
    assert str(refused.value).startswith("orders.charge: retry_when")
    assert words in str(refused.value)


@pytest.mark.parametrize("given", [by_status, with_more, any_number, Callable3(), functools.partial(by_status), None])
def test_what_can_answer_goes_to_the_policy(given):
    assert make_policy("orders.charge", {"retry_when": given}).retry_when is given
    assert check_retry_when(given) is given


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (by_status, "by_status"),
        (functools.partial(by_status), "by_status"),
        (Callable3(), "Callable3"),
    ],
)
def test_a_function_is_named_by_where_it_stands(function, name):
    assert function_name(function) == f"{__name__}.{name}"
