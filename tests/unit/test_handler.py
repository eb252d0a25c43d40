"""Declaring handlers."""

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery, Task
from pydantic import BaseModel

import tasks
from bridge.formats.celery_header import HEADER
from bridge.formats.delivery import Message
from bridge.handler_routes import find_routes
from lossless.worker.run_outcome import ComeBack
from tasks.declaration.celery_defaults import OWN_DEFAULTS as DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.declaration.handler_task import HandlerTask
from tasks.errors import DeadLetter, HandlerError, RetryAsked, Undecodable
from tasks.execution import event_loop
from tasks.execution.time_limits import TimeLimits
from tasks.policy.failure_decision import DeadLetterDelivery, RetryDelivery, decide_failure
from tasks.policy.retry_policy import RetryPolicy
from tasks.testing import outcome

if TYPE_CHECKING:
    from decimal import Decimal

# Celery would rather have queue and priority in task_routes; they are options of a task all the same.
pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")

MESSAGE = Message("orders", 0, 7, b"k", b'{"id": 1}')


class Order(BaseModel):
    id: int


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("handlers", set_as_current=False)
    app.conf.update(DEFAULTS)
    yield app
    app.close()


@pytest.fixture
def handler(app: Celery) -> Callable[..., Any]:
    return lambda *topics, **options: declare_handler(app, topics, options)


def test_a_handler_is_a_celery_task_of_celerys_own_name(app, handler):
    @handler("orders")
    def charge(order):
        return order

    assert isinstance(charge, Task)
    assert isinstance(charge, HandlerTask)
    assert charge.name == f"{__name__}.charge"
    assert app.tasks[charge.name] is charge
    assert charge.acks_late
    assert charge.ignore_result


def test_a_handler_called_directly_is_the_function(handler):
    @handler("orders", max_retries=3)
    def charge(order: dict[str, int]) -> int:
        "Charges."
        return order["id"]

    assert charge({"id": 1}) == 1
    assert charge(order={"id": 2}) == 2
    assert charge.__doc__ == "Charges."
    with pytest.raises(KeyError):
        charge({})


def test_the_public_decorator_declares_on_the_public_app():
    @tasks.handler("unit.public", name="unit.public.handler")
    def public(order):
        return order

    try:
        assert tasks.app.tasks["unit.public.handler"] is public
        assert public("x") == "x"
    finally:
        del tasks.app.tasks["unit.public.handler"]


def test_the_public_names_are_those_of_the_contract():
    assert {"handler", "Message", "DeadLetter", "RetryLater", "StopConsuming"} <= set(tasks.__all__)
    assert all(hasattr(tasks, name) for name in tasks.__all__)


def test_routes_are_read_off_the_app(app, handler):
    handler("orders", "returns", queue="mail", batch=7, name="both")(_value)
    handler("orders", name="one")(_value)
    app.task(name="plain", shared=False)(_nothing)
    routes = find_routes(app)[0]
    assert routes.topics == ["orders", "returns"]
    assert routes.queues == ["celery", "mail"]
    assert [found.name for found in routes.of("orders")] == ["both", "one"]
    assert routes.handlers["both"].batch == 7
    assert routes.topics_into("mail") == {"orders", "returns"}


def test_without_options_everything_is_retried_twelve_times_with_backoff_and_jitter(handler):
    made = handler("orders", name="plain")(_value)
    assert made.policy == RetryPolicy(
        autoretry_for=(Exception,), max_retries=12, backoff=1, backoff_max=600, jitter=True
    )
    assert made.max_retries == 12
    seconds = sum(replace(made.policy, jitter=False).delay(failures) for failures in range(12)) / 2
    assert 15 * 60 < seconds < 25 * 60, "about 20 minutes: longer than a short outage"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"autoretry_for": (ConnectionError,)}, {"autoretry_for": (ConnectionError,)}),
        ({"autoretry_for": [OSError]}, {"autoretry_for": (OSError,)}),
        ({"dont_autoretry_for": (KeyError,)}, {"dont_autoretry_for": (KeyError,)}),
        ({"dead_letter_for": (KeyError,)}, {"dead_letter_for": (KeyError,)}),
        ({"dead_letter_for": KeyError}, {"dead_letter_for": (KeyError,)}),
        ({"stop_for": (OSError,)}, {"stop_for": (OSError,)}),
        ({"max_retries": 0}, {"max_retries": 0}),
        ({"max_retries": None}, {"max_retries": None}),
        ({"retry_kwargs": {"max_retries": 9}}, {"max_retries": 9}),
        ({"retry_kwargs": {"countdown": 4}}, {"fixed_delay": 4}),
        ({"default_retry_delay": 4}, {"fixed_delay": 4}),
        ({"retry_backoff": True}, {"backoff": 1, "fixed_delay": None}),
        ({"retry_backoff": False}, {"fixed_delay": 180}),
        ({"retry_backoff": 7, "retry_backoff_max": 70}, {"backoff": 7, "backoff_max": 70}),
        ({"retry_backoff_multiplier": 1.5}, {"backoff_multiplier": 1.5}),
        ({"retry_backoff_multiplier": 1}, {"backoff_multiplier": 1}),
        ({}, {"backoff_multiplier": 2.0}),
        ({"retry_jitter": False}, {"jitter": False}),
        ({"retry_delays": (1, 2.5)}, {"delays": (1, 2.5), "jitter": False}),
        ({"retry_delays": [1], "retry_jitter": True}, {"delays": (1,), "jitter": True}),
        ({"retry_delays": ()}, {"delays": ()}),
        ({"give_up_after": 90}, {"give_up_after": 90}),
    ],
)
def test_every_option_of_retrying_reaches_the_policy(handler, options, expected):
    policy = handler("orders", name="some", **options)(_value).policy
    assert {name: getattr(policy, name) for name in expected} == expected


def test_retry_delays_are_as_many_retries_as_there_are_delays(handler):
    made = handler("orders", name="some", retry_delays=(1, 2, 3), max_retries=99)(_value)
    assert made.policy.retries == made.max_retries == 3


def test_the_options_of_celery_are_kept(handler):
    options: dict[str, Any] = {
        "queue": "mail",
        "rate_limit": "5/s",
        "time_limit": 30,
        "soft_time_limit": 20,
        "priority": 3,
        "expires": 60,
        "track_started": True,
        "ignore_result": False,
    }
    made = handler("orders", name="some", **options)(_value)
    assert {name: getattr(made, name) for name in options} == options
    assert made.longest_wait == 600
    assert handler("o", name="b", time_limit=9000)(_value).longest_wait == 9000


def test_throws_keeps_what_the_user_says(handler):
    made = handler("orders", name="some", throws=(KeyError,))(_value)
    assert set(made.throws) >= {KeyError, *HandlerTask.throws}


def test_a_bound_handler_gets_its_task_first(handler):
    @handler("orders", bind=True)
    def charge(self, order, message):
        return self.name, order, message

    assert charge.call(MESSAGE) == (charge.name, {"id": 1}, MESSAGE)


def test_a_base_class_of_the_users_is_under_the_handler(handler):
    class Counting(Task):  # type: ignore[type-arg]
        calls = 0

        def before_start(self, task_id, args, kwargs):
            type(self).calls += 1

    made = handler("orders", name="some", base=Counting)(_value)
    assert isinstance(made, Counting)
    assert isinstance(made, HandlerTask)
    assert made.call(MESSAGE) == {"id": 1}


def test_a_hook_that_raises_loses_no_delivery_and_ends_no_retry(handler):
    class Careless(Task):  # type: ignore[type-arg]
        def before_start(self, task_id, args, kwargs):
            raise ConnectionError("sentry is away")

        def on_retry(self, exc, task_id, args, kwargs, einfo):
            raise ConnectionError("sentry is away")

    made = handler("orders", name="some", base=Careless)(_value)
    with pytest.raises(ConnectionError):
        made.before_start("a call by hand", (), {})
    made.push_request(headers={HEADER: {}}, called_directly=False, id="x")
    try:
        with pytest.raises(ComeBack, match="before_start of some raised ConnectionError: sentry is away"):
            made.before_start("x", (), {})
        made.on_retry(ValueError(), "x", (), {}, None)
    finally:
        made.pop_request()


def test_what_a_base_class_says_of_retries_goes_to_the_policy_and_celery_wraps_nothing(handler):
    class Careful(Task):  # type: ignore[type-arg]
        autoretry_for = (ConnectionError,)
        max_retries = 2
        retry_backoff = 7
        retry_backoff_multiplier = 1.5
        region = "eu"

    made = handler("orders", name="some", base=Careful, max_retries=3)(_value)
    assert made.policy == RetryPolicy(
        autoretry_for=(ConnectionError,), max_retries=3, backoff=7, backoff_multiplier=1.5
    )
    assert not hasattr(made, "_orig_run")
    assert handler("orders", name="own", base=Careful, region="us")(_value).region == "us"

    @handler("orders", name="dead", base=Careful)
    def charge(order):
        raise DeadLetter("declined")

    with pytest.raises(DeadLetter):
        charge.call(MESSAGE)


def test_a_base_class_whose_own_call_would_be_passed_by_is_refused(handler):
    class InContext(Task):  # type: ignore[type-arg]
        def __call__(self, *args, **kwargs):
            return self.run(*args, **kwargs)

    with pytest.raises(HandlerError, match="has a __call__ of its own"):
        handler("orders", base=InContext)(_value)


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("acks_late", False, "acks_late must be True"),
        ("serializer", "pickle", "serializer must be 'json'"),
        ("acks_on_failure_or_timeout", False, "acks_on_failure_or_timeout must be True"),
        ("Request", "celery.worker.request:Request", "base= sets Request"),
    ],
)
def test_a_base_class_cannot_take_away_what_a_delivery_is_kept_with(handler, attribute, value, words):
    careless = type("Careless", (Task,), {attribute: value})
    with pytest.raises(HandlerError, match=words):
        handler("orders", name="some", base=careless)(_value)


def test_a_base_class_of_the_handlers_own_kind_is_taken_as_it_is(handler):
    class Ours(HandlerTask):
        abstract = True
        max_retries = 4

    made = handler("orders", name="some", base=Ours)(_value)
    assert (made.max_retries, made.policy.max_retries) == (4, 4)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"*": {"acks_late": False}}, "task_annotations sets acks_late to False"),
        ({"some": {"max_retries": 99}}, "task_annotations sets max_retries: say it at @handler"),
        ({"some": {"autoretry_for": (OSError,)}}, "task_annotations sets autoretry_for"),
        ({"some": {"retry_backoff_multiplier": 3}}, "task_annotations sets retry_backoff_multiplier"),
    ],
)
def test_what_task_annotations_would_undo_is_refused(app, handler, annotations, words):
    app.conf.task_annotations = annotations
    with pytest.raises(HandlerError, match=words):
        handler("orders", name="some")(_value)


def test_other_task_annotations_are_kept(app, handler):
    app.conf.task_annotations = {"some": {"rate_limit": "1/s"}}
    assert handler("orders", name="some")(_value).rate_limit == "1/s"


def test_an_old_name_is_a_task_of_its_own_that_consumes_no_topic(app, handler):
    made = handler("orders", name="new.name", aliases=("old.name", "older.name"), max_retries=3, queue="mail")(_value)
    for alias in ("old.name", "older.name"):
        old = app.tasks[alias]
        assert (old.name, old.policy, old.queue) == (alias, made.policy, "mail")
        assert old.call(MESSAGE) == {"id": 1}
    assert list(find_routes(app)[0].handlers) == ["new.name"]
    with pytest.raises(HandlerError, match=r"'old.name' twice"):
        handler("orders", name="old.name")(_annotated)


def test_a_handlers_queue_is_consumed_without_being_named_and_a_choice_of_the_users_stands(app, handler):
    handler("orders", name="one", queue="priority")(_value)
    assert sorted(app.amqp.queues.consume_from) == ["celery", "priority"]
    app.amqp.queues.select(["celery"])
    handler("orders", name="two", queue="another")(_value)
    assert sorted(app.amqp.queues.consume_from) == ["celery"]
    assert find_routes(app)[0].queues == ["another", "priority"]


def _yields(order):
    yield order


async def _yields_async(order):
    yield order


@pytest.mark.parametrize("function", [_yields, _yields_async])
def test_a_generator_of_which_nothing_would_run_is_refused(handler, function):
    with pytest.raises(HandlerError, match="it yields"):
        handler("orders", name="some")(function)


def test_a_function_that_gives_back_a_generator_is_dead_lettered(handler):
    @handler("orders")
    def charge(order):
        return _yields(order)

    with pytest.raises(DeadLetter, match="generator"):
        charge.call(MESSAGE)


def test_an_async_handler_is_awaited_on_one_loop_for_all_messages(handler):
    loops = []

    @handler("orders")
    async def charge(order, message):
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return order["id"], message.offset

    assert [charge.call(MESSAGE) for _ in range(3)] == [(1, 7)] * 3
    assert len(set(loops)) == 1
    event_loop.close_loop()
    assert charge.call(MESSAGE) == (1, 7)
    assert len(set(loops)) == 2


def test_what_an_async_handler_raises_is_raised(handler):
    @handler("orders")
    async def charge(order):
        await asyncio.sleep(0)
        raise DeadLetter("declined")

    with pytest.raises(DeadLetter, match="declined"):
        charge.call(MESSAGE)


def test_a_function_that_gives_back_something_to_await_is_awaited(handler):
    async def work(order):
        return order["id"]

    @handler("orders")
    def charge(order):
        return work(order)

    assert charge.call(MESSAGE) == 1


def test_an_async_handler_called_as_a_function_is_a_coroutine_function(handler):
    @handler("orders")
    async def charge(order):
        return order

    assert asyncio.run(charge(5)) == 5


def test_a_codec_that_is_async_is_refused(handler):
    async def codec(raw):
        return raw

    with pytest.raises(HandlerError, match="codec is async"):
        handler("orders", codec=codec)(_value)


class Limit(Exception):
    """As a soft time limit raises."""


@pytest.fixture
def strike_after() -> Iterator[Callable[[float], None]]:
    """Send this process the signal of a soft time limit, after some seconds."""

    def limit(*_: Any) -> None:
        raise Limit

    before = signal.signal(signal.SIGUSR1, limit)
    timers: list[threading.Timer] = []

    def strike(seconds: float) -> None:
        timers.append(threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1)))
        timers[-1].start()

    yield strike
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGUSR1, before)


def test_a_soft_limit_ends_an_async_handler_that_waits_and_its_loop_goes_on(handler, strike_after):
    closed = []

    @handler("orders")
    async def charge(order):
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    strike_after(0.1)
    with pytest.raises(Limit):
        charge.call(MESSAGE)
    assert closed == [True]
    strike_after(0.1)
    with pytest.raises(Limit):
        charge.call(MESSAGE)


def test_a_soft_limit_is_raised_in_an_async_handler_that_does_not_wait(handler, strike_after):
    @handler("orders")
    async def charge(order):
        try:
            while True:
                sum(range(1000))
        except Limit:
            return "cleaned up"

    strike_after(0.1)
    assert charge.call(MESSAGE) == "cleaned up"


def test_a_soft_limit_strikes_the_handler_and_no_other_task_of_its_loop(handler, strike_after):
    beside = []

    async def busy():
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    @handler("orders")
    async def charge(order):
        beside.append(asyncio.create_task(busy()))
        await asyncio.sleep(60)

    strike_after(0.2)
    with pytest.raises(Limit):
        charge.call(MESSAGE)
    assert not beside[0].done()
    event_loop.close_loop()
    assert beside[0].cancelled()


@pytest.mark.parametrize("asked", [{}, {"id": 2}])
def test_a_handler_that_calls_itself_calls_its_function_and_not_its_delivery(handler, monkeypatch, asked):
    calls = []

    @handler("orders", name="some")
    def charge(order):
        calls.append(order)
        return charge({"again": True}) if len(calls) == 1 else "done"

    monkeypatch.setattr("tasks.execution.batch_run.run_batch", lambda task, header: task.call(MESSAGE))
    charge.push_request(headers={HEADER: asked}, called_directly=False, id="x")
    try:
        assert charge() == "done"
    finally:
        charge.pop_request()
    assert calls == [{"id": 1}, {"again": True}]


@pytest.mark.parametrize("countdown", [-1, 1e12, float("inf"), float("nan"), "5"])
def test_self_retry_takes_no_delay_that_would_never_end(handler, countdown):
    @handler("orders", bind=True, name="some")
    def charge(self, order):
        self.retry(countdown=countdown)

    charge.push_request(headers={HEADER: {}}, called_directly=False, id="x")
    try:
        with pytest.raises(ValueError, match="a year"):
            charge.call(MESSAGE)
    finally:
        charge.pop_request()


def _value(order):
    return order


def _value_and_message(order, message):
    return order, message


def _annotated(order, what: Message):
    return order, what


def _keyword(order, *, message):
    return order, message


def _message_alone(what: Message):
    return what


def _as_text(order, what: "Message"):
    return order, what


def _message_first(record: Message, order):
    return order, record


def _value_called_message(message):
    return message


def _anything(*args, **kwargs):
    return args, kwargs


def _defaulted(order, limit=5):
    return order, limit


VALUE = {"id": 1}


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (_value, VALUE),
        (_value_and_message, (VALUE, MESSAGE)),
        (_annotated, (VALUE, MESSAGE)),
        (_keyword, (VALUE, MESSAGE)),
        (_message_alone, MESSAGE),
        (_as_text, (VALUE, MESSAGE)),
        (_value_called_message, VALUE),
        (_defaulted, (VALUE, 5)),
    ],
)
def test_a_handler_gets_the_value_and_the_message_if_it_asks_for_it(handler, function, returned):
    assert handler("orders")(function).call(MESSAGE) == returned


def test_a_message_may_stand_before_the_value(handler):
    assert handler("orders")(_message_first).call(MESSAGE) == (VALUE, MESSAGE)


def test_a_handler_of_any_arguments_gets_the_value(handler):
    assert handler("orders")(_anything).call(MESSAGE) == ((VALUE,), {})


def test_an_annotation_validates(handler):
    @handler("orders")
    def charge(order: Order):
        return order

    assert charge.call(MESSAGE) == Order(id=1)
    with pytest.raises(Undecodable):
        charge.call(Message("orders", 0, 0, value=b'{"id": "x"}'))


def test_an_annotation_may_be_written_as_text(handler):
    @handler("orders")
    def charge(order: "list[Order]"):
        return order

    assert charge.call(Message("orders", 0, 0, value=b'[{"id": 1}]')) == [Order(id=1)]


def test_an_annotation_that_cannot_be_read_names_the_handler(handler):
    def charge(order: "Decimal"):
        return order

    with pytest.raises(HandlerError, match=r"charge: the annotation 'Decimal' cannot be read"):
        handler("orders")(charge)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, 'batch takes "auto" or a whole number'),
        ({"batch": True}, 'batch takes "auto" or a whole number'),
        ({"batch": 1.5}, 'batch takes "auto" or a whole number'),
        ({"batch": 10_001}, 'batch takes "auto" or a whole number'),
        ({"bulk": 0}, "bulk takes a whole number from 1 to 10,000; it was given 0."),
        ({"bulk": True}, "bulk takes a whole number"),
        ({"bulk": "auto"}, "bulk takes a whole number"),
        ({"bulk": 10_001}, "bulk takes a whole number"),
        ({"bulk": 500, "batch": 9}, "a bulk handler carries as many deliveries as bulk says: leave batch out"),
        ({"codec": "json"}, "codec takes bytes"),
        ({"autoretry_for": ("ValueError",)}, "exception classes are wanted"),
        ({"autoretry_for": ValueError()}, "exception classes are wanted"),
        ({"dont_autoretry_for": 5}, "exception classes are wanted"),
        ({"dead_letter_for": (int,)}, "exception classes are wanted"),
        ({"stop_for": "x"}, "exception classes are wanted"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": "5"}, "max_retries"),
        ({"max_retries": 2.5}, "max_retries"),
        ({"retry_delays": (1, -1)}, "retry_delays"),
        ({"retry_delays": (1, "x")}, "retry_delays"),
        ({"retry_delays": 300}, "retry_delays"),
        ({"retry_delays": (float("nan"),)}, "retry_delays"),
        ({"retry_delays": "300"}, "retry_delays"),
        ({"retry_backoff": -1}, "retry_backoff"),
        ({"retry_backoff": "x"}, "retry_backoff"),
        ({"retry_backoff_max": float("inf")}, "retry_backoff_max"),
        ({"retry_backoff_multiplier": 0.5}, "multiplier takes finite numbers from 1 on; it was given 0.5."),
        ({"retry_backoff_multiplier": float("nan")}, "takes finite numbers from 1 on; it was given nan."),
        ({"retry_backoff_multiplier": float("inf")}, "takes finite numbers from 1 on; it was given inf."),
        ({"retry_backoff_multiplier": 10**400}, "takes finite numbers from 1 on"),
        ({"retry_backoff_multiplier": "2"}, "takes finite numbers from 1 on; it was given '2'."),
        ({"retry_backoff_multiplier": True}, "takes finite numbers from 1 on; it was given True."),
        ({"retry_backoff_multiplier": None}, "takes finite numbers from 1 on; it was given None."),
        ({"retry_backoff_multiplyer": 2}, "is 'retry_backoff_multiplier' meant?"),
        ({"retry_kwargs": {"countdown": -4}}, "countdown"),
        ({"give_up_after": -1}, "give_up_after"),
        ({"give_up_after": "1h"}, "give_up_after"),
        ({"retry_delays": (1e12,)}, "a year"),
        ({"retry_backoff_max": 10**12}, "a year"),
        ({"retry_kwargs": {"countdown": 1e12}}, "a year"),
        ({"retry_kwargs": {"max_retry": 3}}, "retry_kwargs takes max_retries and countdown"),
        ({"retry_backof": True}, "no option 'retry_backof': is 'retry_backoff' meant?"),
        ({"codecs": bytes}, "is 'codec' meant?"),
        ({"dead_letter": (KeyError,)}, "is 'dead_letter_for' meant?"),
        ({"lazy": True}, "no option 'lazy'"),
        ({"run": len}, "no option 'run'"),
        ({"policy": None}, "no option 'policy'"),
        ({"source_topics": ()}, "no option 'source_topics'"),
        ({"quite_something": 1}, "goes into a class: base="),
        ({"acks_late": False}, "acks_late must be True: a killed worker would lose"),
        ({"acks_on_failure": False}, "acks_on_failure must be True"),
        ({"acks_on_timeout": False}, "acks_on_timeout must be True"),
        ({"serializer": "pickle"}, "serializer must be 'json'"),
        ({"typing": True}, "typing must be False"),
        ({"reject_on_worker_lost": True}, "reject_on_worker_lost must be False"),
        ({"rate_limit": "10/x"}, 'rate_limit takes a number a second, or one like "10/m"'),
        ({"rate_limit": "fast"}, "rate_limit takes a number a second"),
        ({"soft_time_limit": 60, "time_limit": 1}, "soft_time_limit (60) must be less than time_limit (1)"),
        ({"aliases": "old.name"}, "aliases takes a sequence"),
        ({"aliases": ("",)}, "aliases takes names"),
        ({"aliases": ("orders.handlers.charge",)}, "aliases takes names that the handler had before"),
    ],
    ids=repr,
)
def test_an_option_that_cannot_be_is_an_error_that_names_the_handler(handler, options, words):
    with pytest.raises(HandlerError) as refused:
        handler("orders", name="orders.handlers.charge", **options)(_value)
    assert str(refused.value).startswith("orders.handlers.charge: ")
    assert words in str(refused.value)


@pytest.mark.parametrize("topics", [(), ("",), (5,), (None,), (b"orders",)])
def test_topics_that_are_none_are_refused(handler, topics):
    with pytest.raises(HandlerError, match="@handler takes the names of topics"):
        handler(*topics)


@pytest.mark.parametrize("topic", ["^orders.*", "orders.*", "no spaces", "größe", "..", "o" * 250])
def test_a_pattern_and_a_name_that_kafka_refuses_are_refused_at_import(handler, topic):
    with pytest.raises(HandlerError, match="is no name of a topic"):
        handler("orders", topic)


def test_a_decorator_without_brackets_is_refused(handler):
    with pytest.raises(HandlerError, match="@handler takes the names of topics"):
        handler(_value)


def _third(order, message, more): ...


def _third_by_name(order, *, more): ...


def _other(order, other): ...


@pytest.mark.parametrize("function", [_third, _third_by_name, _other])
def test_a_function_that_wants_more_than_there_is_names_the_parameter(handler, function):
    with pytest.raises(HandlerError, match="nothing is there to fill"):
        handler("orders", name="some")(function)


def _nothing(): ...


def _optional(*, order=None): ...


def _options(**options): ...


@pytest.mark.parametrize(
    ("function", "bind", "words"),
    [
        (_nothing, False, "a parameter for neither."),
        (_optional, False, "a parameter for neither."),
        (_options, False, "a parameter for neither."),
        (_value, True, "with bind=True the first is the task"),
    ],
)
def test_a_function_that_nothing_of_a_record_would_reach_is_refused(handler, function, bind, words):
    with pytest.raises(HandlerError, match=r"^some: a handler takes the value, the message, or both") as refused:
        handler("orders", name="some", bind=bind)(function)
    assert words in str(refused.value)


class _Charge:
    def __init__(self, order): ...

    def __call__(self, order): ...


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (_Charge, "_Charge is a class"),
        (_Charge(1), "write it as a function"),
        (lambda order: None, "write it as a function"),
        (
            Celery("plain", set_as_current=False).task(name="unit.shared")(_value),
            "unit.shared is a Celery task already",
        ),
    ],
)
def test_what_is_no_function_is_refused_with_what_to_do(handler, given, words):
    with pytest.raises(HandlerError, match=r"^@handler takes a function: ") as refused:
        handler("orders")(given)
    assert words in str(refused.value)


def test_two_handlers_of_one_name_are_an_error(handler):
    handler("orders", name="some")(_value)
    with pytest.raises(HandlerError, match="'some' twice"):
        handler("returns", name="some")(_annotated)


def test_a_module_that_is_imported_twice_is_no_error(handler):
    def declared():
        return handler("orders", name="some")(_value)

    assert declared() is declared()


def test_a_handler_keeps_the_signature_of_its_function(handler):
    made = handler("orders")(_value_and_message)
    assert list(inspect.signature(made.run).parameters) == ["order", "message"]


def test_retry_of_a_direct_call_is_celerys_own(handler):
    @handler("orders", bind=True)
    def charge(self, order):
        raise self.retry(exc=ConnectionError("by hand"))

    with pytest.raises(ConnectionError, match="by hand"):
        charge({})


def test_what_self_retry_asks_for_goes_to_the_policy():
    policy = RetryPolicy()
    assert decide_failure(policy, RetryAsked(5, 3, None), 2) == RetryDelivery(5)
    assert decide_failure(policy, RetryAsked(5, 3, None), 3) == DeadLetterDelivery("exhausted")


def test_a_limit_of_the_settings_is_a_handlers_too_and_under_a_second_it_goes_one_by_one(app, handler):
    @handler("orders")
    def charge(order):
        return order

    @handler("orders", soft_time_limit=5, time_limit=9)
    def notify(order):
        return order

    assert (charge.one_by_one, notify.one_by_one) == ("", "")
    app.conf.update(task_soft_time_limit=0.4, task_time_limit=0.8)
    assert charge.one_by_one == "its time limit is 0.4 s"
    assert notify.one_by_one == ""
    assert (TimeLimits.from_request(charge), TimeLimits.from_request(notify)) == (
        TimeLimits(0.4, 0.8),
        TimeLimits(5, 9),
    )


def test_a_handler_says_whether_it_would_take_a_value_and_upgrades_what_it_is_given(handler):
    class Order(BaseModel):
        id: int

    def charge(order: Order):
        return order.id

    made = handler("orders", upgrade=lambda value: {"id": value["number"]})(charge)
    assert made.check_value(b'{"number": 5}').after == '{"id": 5}'
    assert outcome(made, {"number": 5}).returned == 5
    assert str(outcome(made, {"n": 5})) == "dead: undecodable"
    with pytest.raises(HandlerError, match=r"charge: upgrade takes a function"):
        handler("orders", upgrade=5, name="charge")(charge)
