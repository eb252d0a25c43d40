"""What `@handler`'s options and a function's parameters say: refused with the nearest name, or made into a policy."""

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import HandlerTask, Message, app
from tasks.declaration.app_setup import route_to_group_queue
from tasks.declaration.handler_declaration import read_annotation, read_parameters
from tasks.declaration.handler_options import check_limit_options, check_option_names, take_policy_options
from tasks.errors import HandlerError
from tasks.execution.dead_letter_writer import BURIAL_TASK
from tasks.execution.message_resend import PUBLISH_BACKOFF
from tasks.policy.retry_policy import RetryPolicy, make_policy


class Base(HandlerTask[..., Any]):
    abstract = True
    max_retries = 7
    shop = "corner"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_retrys": 1}, "is 'max_retries' meant?"),
        ({"wholly_else": 1}, "an attribute of the task's own goes into a class"),
        ({"order": "key"}, """order is a topic's: kafka_topics = {"orders": {"order": …}} in celeryconfig.py"""),
        ({"commit": "completion"}, "commit is a topic's"),
        ({"sequence": ()}, "sequence is a topic's"),
        ({"acks_late": False}, "acks_late must be True: a killed worker would lose"),
        ({"serializer": "pickle"}, "serializer must be 'json'"),
    ],
)
def test_what_is_no_option_or_would_lose_deliveries_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HandlerError) as refused:
        check_option_names("h", options, None)
    assert words in str(refused.value)


def test_an_attribute_of_the_users_class_is_an_option() -> None:
    check_option_names("h", {"shop": "other"}, Base)


@pytest.mark.parametrize("limit", ["10/x", "fast", [], object()])
def test_a_rate_that_no_worker_can_read_is_refused(limit: Any) -> None:
    with pytest.raises(HandlerError, match="rate_limit"):
        check_limit_options("h", {"rate_limit": limit})


@pytest.mark.parametrize(
    ("soft", "hard", "refused"), [(5, 10, False), (10, 10, True), (11, 10, True), (None, 1, False)]
)
def test_a_soft_limit_lies_below_the_hard_one(soft: Any, hard: Any, refused: bool) -> None:
    options = {"soft_time_limit": soft, "time_limit": hard}
    if refused:
        with pytest.raises(HandlerError, match="must be less"):
            check_limit_options("h", options)
    else:
        check_limit_options("h", options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, RetryPolicy()),
        ({"max_retries": None}, RetryPolicy(max_retries=None)),
        ({"retry_delays": (1, 2)}, RetryPolicy(delays=(1, 2), jitter=False)),
        ({"retry_delays": (1, 2), "retry_jitter": True}, RetryPolicy(delays=(1, 2))),
        ({"retry_kwargs": {"max_retries": 2, "countdown": 9}}, RetryPolicy(max_retries=2, fixed_delay=9, backoff=0)),
        ({"dead_letter_for": KeyError}, RetryPolicy(dead_letter_for=(KeyError,))),
    ],
)
def test_the_options_of_failures_make_a_policy_and_are_taken_out(
    options: dict[str, Any], expected: RetryPolicy
) -> None:
    left = {**options, "queue": "mail"}
    found = make_policy("h", take_policy_options(left, None))
    assert found.retries == expected.retries
    assert (found.delays, found.fixed_delay, found.jitter) == (expected.delays, expected.fixed_delay, expected.jitter)
    assert found.dead_letter_for == expected.dead_letter_for
    assert left.pop("queue") == "mail"
    assert not set(left) & {"retry_delays", "retry_kwargs", "retry_jitter", "dead_letter_for"}


def test_what_the_options_do_not_say_the_users_class_does() -> None:
    assert make_policy("h", take_policy_options({}, Base)).max_retries == 7
    assert make_policy("h", take_policy_options({"max_retries": 1}, Base)).max_retries == 1


def value(order: Any) -> None: ...
def both(order: Any, message: Any) -> None: ...
def by_annotation(order: Any, what: Message) -> None: ...
def message_first(what: Message, order: Any) -> None: ...
def message_alone(what: Message) -> None: ...
def bound(self: Any, order: Any) -> None: ...
def nothing() -> None: ...
def too_much(order: Any, message: Any, more: Any) -> None: ...
def misread(order: "NotThere") -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "is_bound", "expected"),
    [
        (value, False, ("order", None, False)),
        (both, False, ("order", "message", False)),
        (by_annotation, False, ("order", "what", False)),
        (message_first, False, ("order", "what", True)),
        (message_alone, False, (None, "what", False)),
        (bound, True, ("order", None, False)),
    ],
)
def test_a_function_asks_for_the_value_the_message_or_both(function: Any, is_bound: bool, expected: Any) -> None:
    found = read_parameters("h", function, bound=is_bound)
    assert (found.value and found.value.name, found.message, found.message_first) == expected


@pytest.mark.parametrize("function", [nothing, too_much])
def test_a_parameter_that_nothing_fills_is_refused(function: Any) -> None:
    with pytest.raises(HandlerError):
        read_parameters("h", function, bound=False)


def test_an_annotation_that_cannot_be_read_is_refused_with_what_to_do() -> None:
    (parameter,) = inspect.signature(misread).parameters.values()
    with pytest.raises(HandlerError, match="import it outside TYPE_CHECKING"):
        read_annotation("h", misread, parameter)


@given(st.integers(0, 10**6))
def test_the_waits_of_a_dead_letter_that_kafka_does_not_take_grow_to_a_minute(tries: int) -> None:
    pauses = [PUBLISH_BACKOFF.compute_pause(number) for number in (0, tries, tries + 1)]
    assert 2 == pauses[0] <= pauses[1] <= pauses[2] <= 60


def test_handlers_and_burials_go_to_the_groups_queue_and_plain_tasks_their_own_way(monkeypatch: Any) -> None:
    monkeypatch.setenv("BRIDGE_GROUP", "shop")
    handles = Base()
    assert route_to_group_queue("h", (), {}, {}, task=handles) == {"queue": "shop"}
    assert route_to_group_queue(BURIAL_TASK, (), {}, {}, task=app.tasks[BURIAL_TASK]) == {"queue": "shop"}
    assert route_to_group_queue("mail", (), {}, {}, task=app.tasks["celery.accumulate"]) is None
