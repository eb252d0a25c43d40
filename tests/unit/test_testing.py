"""`tasks.testing`: what would become of a record, without servers."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from tasks import Attempts, Breaker, DeadLetter, Limit, Message, Messages, RetryLater, StopConsuming
from tasks.declaration.celery_defaults import OWN_DEFAULTS as DEFAULTS
from tasks.declaration.handler_declaration import declare_handler
from tasks.testing import limit_key, outcome, outcome_of, outcomes, unique_name


class Order(BaseModel):
    id: int
    amount: float = 1


class CardDeclined(Exception):
    pass


@pytest.fixture
def handler() -> Iterator[Callable[..., Any]]:
    app = Celery("handlers", set_as_current=False)
    app.conf.update(DEFAULTS)
    yield lambda *topics, **options: declare_handler(app, topics, options)
    app.close()


ERRORS: dict[str, BaseException] = {
    "away": ConnectionError("away"),
    "declined": CardDeclined("no"),
    "dead": DeadLetter("why"),
    "later": RetryLater(7),
    "stop": StopConsuming("why"),
    "ignore": Ignore(),
    "exit": SystemExit(3),
    "unlisted": KeyError("x"),
}


@pytest.fixture
def charge(handler: Callable[..., Any]) -> Any:
    @handler("orders", autoretry_for=(ConnectionError,), max_retries=3, dead_letter_for=(CardDeclined,))
    def charge(order: Any, message: Message) -> str:
        if error := ERRORS.get(order):
            raise error
        return f"{order} of {message.topic}"

    return charge


@pytest.mark.parametrize(
    ("value", "attempt", "becomes"),
    [
        ("fine", 1, "done"),
        ("away", 1, "retry in 1 s"),
        ("away", 3, "retry in 4 s"),
        ("away", 4, "dead: exhausted"),
        ("declined", 1, "dead: permanent"),
        ("dead", 1, "dead: permanent"),
        ("later", 99, "retry in 7 s"),
        ("stop", 1, "halt"),
        ("ignore", 1, "done"),
        ("exit", 2, "retry in 2 s"),
        ("unlisted", 1, "dead: permanent"),
        (b"\xff", 1, "dead: undecodable"),
    ],
)
def test_a_value_becomes_what_it_would_in_a_worker_at_any_attempt(charge, value, attempt, becomes):
    assert str(outcome(charge, value, attempt=attempt)) == becomes


@pytest.mark.parametrize(
    ("attempt", "becomes"), [(1, "retry in 40 s"), (2, "retry in 60 s"), (3, "retry in 120 s"), (4, "dead: exhausted")]
)
def test_a_retry_waits_as_the_multiplier_and_the_retry_topics_have_it(handler, attempt, becomes):
    @handler("orders", max_retries=3, retry_backoff=40, retry_backoff_multiplier=1.5)
    def charge(order: Any) -> None:
        raise ConnectionError("away")

    assert str(outcome(charge, {}, attempt=attempt)) == becomes


def test_an_outcome_has_what_was_returned_or_raised(charge):
    assert outcome(charge, "fine").returned == "fine of orders"
    assert outcome(charge, "away").error is ERRORS["away"]
    assert "Undecodable" in repr(outcome(charge, b"{").error)


def test_models_validate_and_may_be_given_themselves(handler):
    @handler("orders")
    def charge(order: Order) -> Order:
        return order

    assert outcome(charge, {"id": 1}).returned == outcome(charge, Order(id=1)).returned == Order(id=1)
    assert str(outcome(charge, {"id": "x"})) == "dead: undecodable"


def test_the_codec_reads_what_is_given(handler):
    texts = handler("orders", name="texts", codec=str)(_value)
    assert outcome(texts, "größe").returned == "größe"
    numbers = handler("orders", name="numbers", codec=int)(_value)
    assert outcome(numbers, b"5").returned == 5
    assert str(outcome(numbers, b"x")) == "dead: undecodable"
    with pytest.raises(TypeError, match="give the record's bytes"):
        outcome(numbers, 5)


def _value(value: Any) -> Any:
    return value


def test_a_tombstone_a_key_headers_and_the_attempt_reach_the_handler(handler):
    @handler("orders")
    def charge(order: Any, message: Message) -> Any:
        return order, message.key, message.header("a"), message.attempt

    assert outcome(charge, None, key=b"k", headers=(("a", b"1"),), attempt=4).returned == (None, b"k", b"1", 4)
    assert outcome(charge, Message("other", 1, 2, value=b"1")).returned == (1, None, None, 1)


def test_an_async_handler_is_awaited(handler):
    @handler("orders")
    async def charge(order: Any) -> Any:
        await asyncio.sleep(0)
        return order

    assert outcome(charge, 5).returned == 5


def test_an_async_handler_cannot_be_tried_in_a_loop_that_runs_and_says_what_to_do(handler):
    @handler("orders")
    async def charge(order):
        return order

    async def in_a_loop():
        with pytest.raises(RuntimeError, match="from a test that is not async"):
            outcome(charge, {"id": 1})

    asyncio.run(in_a_loop())


def test_self_retry_and_the_time_budget_count(handler):
    @handler("orders", bind=True, max_retries=2)
    def bound(self: Any, order: Any) -> None:
        raise self.retry(countdown=order)

    assert str(outcome(bound, 9, attempt=2)) == "retry in 9 s"
    assert str(outcome(bound, 9, attempt=3)) == "dead: exhausted"

    @handler("orders", bind=True)
    def quiet(self: Any, order: Any) -> None:
        self.retry(throw=False)

    assert str(outcome(quiet, 9, attempt=3)) == "retry in 4 s"

    @handler("orders", give_up_after=60)
    def budgeted(order: Any) -> None:
        raise ConnectionError

    assert str(outcome(budgeted, 1, failing_for=59)) == "retry in 1 s"
    assert str(outcome(budgeted, 1, failing_for=60)) == "dead: expired"


@dataclass
class Database:
    session: Session


def test_settle_with_works_and_an_earlier_runs_commit_counts(handler):
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sold (id INTEGER)"))

    @handler("orders")
    def charge(order: Any, message: Message) -> str:
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO sold VALUES (1)"))
            message.settle_with(session)
        return "sold"

    record = Message("orders", 0, 7, value=b"{}")
    assert outcome(charge, record).returned == "sold"
    again = outcome(charge, record)
    assert (str(again), again.returned) == ("done", None)
    # By hand, each message is a delivery of its own.
    assert [charge({}, Message("orders", 0, offset)) for offset in (1, 2)] == ["sold", "sold"]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM sold")).scalar() == 3
    engine.dispose()


def test_each_value_is_a_record_of_its_own(handler):
    """Two orders that settle themselves in the handler's database are two rows."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sold (id INTEGER)"))

    @handler("orders")
    def charge(order: Any, message: Message) -> str:
        with Session(engine) as session, session.begin():
            message.settle_with(session)
            session.execute(text("INSERT INTO sold VALUES (:id)"), {"id": order})
        return message.coordinates

    assert outcome(charge, 1).returned != outcome(charge, 2).returned
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM sold")).scalars().all() == [1, 2]
    engine.dispose()


@pytest.mark.parametrize("error", [AssertionError("3 != 4"), pytest.fail.Exception("no"), KeyboardInterrupt()])
def test_a_failed_check_inside_a_handler_fails_the_test(handler, error):
    @handler("orders")
    def charge(order: Any) -> None:
        raise error

    with pytest.raises(type(error)):
        outcome(charge, 1)
    assert str(outcome_of(charge, error)) == "retry in 1 s"


def test_what_a_handler_publishes_is_seen_unless_it_fails(handler):
    @handler("orders", max_retries=1)
    def charge(order: Any, message: Message) -> None:
        message.publish("invoices", {"order": order}, key="k")
        if order == "away":
            raise ConnectionError

    (sent,) = outcome(charge, 5).published
    assert (sent.topic, sent.key, sent.value) == ("invoices", b"k", b'{"order":5}')
    assert outcome(charge, "away").published == ()
    record = Message("orders", 0, 1, value=b"6")
    outcome(charge, record)
    assert [sent.value for sent in record.outbox.messages] == [b'{"order":6}']  # type: ignore[union-attr]


def test_an_open_circuit_breaker_can_be_asked_for(handler):
    @handler("orders", breaker=Breaker("bank"), dead_letter_for=(CardDeclined,))
    def charge(order: Any) -> None:
        raise RuntimeError("it ran")

    assert str(outcome(charge, 1, breaker_open=True)) == "wait"
    assert str(outcome_of(charge, ConnectionError(), attempt=13)) == "dead: exhausted"
    assert str(outcome_of(charge, ConnectionError(), attempt=13, breaker_open=True)) == "wait"
    assert str(outcome_of(charge, DeadLetter("no"), breaker_open=True)) == "dead: permanent"
    with pytest.raises(ValueError, match="has no breaker that could be open"):
        outcome(handler("orders", name="other")(_value), 1, breaker_open=True)


@pytest.mark.parametrize("ask", [lambda given: outcome(given, 1), lambda given: outcome_of(given, OSError())])
def test_a_plain_function_is_refused_with_what_to_do(ask):
    with pytest.raises(TypeError, match=r'_value is no handler: put @handler\("topic"\) on the function'):
        ask(_value)


@pytest.mark.parametrize(("asked", "real"), [(59, "59"), (60, "60"), (70, "120"), (4000, "21600"), (100_000, "108000")])
def test_a_long_wait_is_as_long_as_its_retry_topic_makes_it(handler, asked, real):
    @handler("orders")
    def charge(order: Any) -> None:
        raise RetryLater(order)

    assert str(outcome(charge, asked)) == f"retry in {real} s"


def test_nothing_is_left_behind(charge):
    policy = charge.policy
    outcome(charge, "away", attempt=2)
    assert charge.policy is policy
    assert charge.request.called_directly


def by_status(message: Message, error: Exception, attempts: Attempts) -> float | type[DeadLetter] | None:
    if message.header("test"):
        return DeadLetter
    if isinstance(error, CardDeclined):
        return 1 / attempts.failed
    return 60 if isinstance(error, ConnectionError) else None


@pytest.mark.parametrize(
    ("error", "attempt", "headers", "becomes", "fault"),
    [
        (ConnectionError(), 1, (), "retry in 60 s", ""),
        (ConnectionError(), 3, (), "dead: exhausted", ""),
        (KeyError(), 2, (), "retry in 2 s", ""),
        (KeyError(), 1, (("test", b"1"),), "dead: permanent", ""),
        (CardDeclined(), 1, (), "retry in 1 s", "raised ZeroDivisionError"),
        (CardDeclined(), 3, (), "dead: exhausted", ""),
        (ERRORS["stop"], 1, (("test", b"1"),), "halt", ""),
    ],
)
def test_what_would_become_of_an_error_is_told_without_running_the_handler(
    handler, error, attempt, headers, becomes, fault
):
    @handler("orders", max_retries=2, retry_when=by_status)
    def charge(order: Any) -> None:
        raise AssertionError("it ran")

    found = outcome_of(charge, error, attempt=attempt, headers=headers)
    assert str(found) == becomes
    assert fault in found.fault
    assert bool(fault) == bool(found.fault)
    assert found.error is error


def test_a_handlers_retry_when_counts_where_it_runs(handler):
    @handler("orders", retry_when=by_status)
    def charge(order: Any) -> None:
        raise ERRORS[order]

    assert str(outcome(charge, "away")) == "retry in 60 s"
    assert str(outcome(charge, "later")) == "retry in 7 s"
    assert str(outcome(charge, "unlisted", headers=(("test", b"1"),))) == "dead: permanent"
    assert "ZeroDivisionError" in outcome(charge, "declined").fault


@pytest.fixture
def store(handler: Callable[..., Any]) -> Any:
    @handler("orders", bulk=5, retry_backoff=4, max_retries=1)
    def store(orders: list[Order], messages: Messages) -> int:
        for number, order in enumerate(orders):
            messages[number].publish("stored", {"id": order.id})
            if order.amount == 0:
                messages.fail(number, DeadLetter("zero"))
            if order.amount == 7:
                messages.later(number, 7)
        if any(order.amount < 0 for order in orders):
            raise ConnectionError("away")
        return len(orders)

    return store


def test_of_a_bulk_each_record_becomes_what_it_would_in_a_worker(store):
    found = outcomes(store, [{"id": 1}, {"id": 2, "amount": 0}, b"{", {"id": 4, "amount": 7}])
    assert [*map(str, found)] == ["done", "dead: permanent", "dead: undecodable", "retry in 7 s"]
    assert found[0].returned == 3
    assert [len(each.published) for each in found] == [1, 0, 0, 0]


def test_an_error_without_blame_is_the_outcome_of_its_culprit_alone(store):
    bad = {"id": 3, "amount": -1}
    assert [*map(str, outcomes(store, [{"id": 1}, {"id": 2}, bad]))] == ["done", "done", "retry in 4 s"]
    assert [*map(str, outcomes(store, [bad, {"id": 1}], attempt=2))] == ["dead: exhausted", "done"]
    assert [*map(str, outcomes(store, [bad, {"id": 1, "amount": 0}]))] == ["retry in 4 s", "dead: permanent"]


def test_of_a_bulk_handler_a_single_record_is_a_list_of_one(store):
    assert outcome(store, {"id": 1}).returned == 1
    assert str(outcome(store, {"id": 1, "amount": -1})) == "retry in 4 s"


def test_of_a_bulk_there_is_at_least_one_record_and_no_more_than_a_call_takes(store, charge):
    with pytest.raises(ValueError, match=r"store takes 1 to 5 records in one call; it was given 6\."):
        outcomes(store, [{"id": number} for number in range(6)])
    with pytest.raises(TypeError, match="takes one record at a time: ask outcome"):
        outcomes(charge, ["fine"])


@pytest.mark.parametrize("value", [{"id": 1}, "text", b"{}", Message("orders", 0, 7)], ids=str)
def test_one_value_is_no_list_of_values(store, value):
    with pytest.raises(TypeError, match=r"outcomes takes a list of values; ask outcome\(\) about one"):
        outcomes(store, value)


def test_the_name_of_a_record_is_told_and_a_handler_without_unique_by_is_refused(handler):
    @handler("orders", unique_by="field:id")
    def charge(order: Any) -> None: ...

    @handler("orders")
    def plain(order: Any) -> None: ...

    assert unique_name(charge, {"id": 7}) == unique_name(charge, b'{"id": "7"}') == "7"
    assert unique_name(charge, None) is None
    with pytest.raises(ValueError, match="give it unique_by="):
        unique_name(plain, {"id": 7})


def test_a_name_that_cannot_be_found_fails_the_delivery(handler):
    @handler("orders", unique_by=lambda message: message.headers[0][0])
    def charge(order: Any) -> None: ...

    assert str(outcome(charge, 1)) == "retry in 1 s"
    assert str(outcome(charge, 1, headers=(("id", b"1"),))) == "done"
    assert unique_name(charge, 1, headers=(("id", b"1"),)) == "id"


def test_the_key_by_which_a_handler_shares_its_limit_is_told(handler: Callable[..., Any], charge: Any):
    limit = Limit("told", per_second=5, by=lambda message: message.key)

    @handler("orders", name="unit.told_limit", limit=limit)
    def told(order: Any) -> str:
        return "done"

    assert limit_key(told, {"id": 1}, key=b"4711") == "4711"
    assert limit_key(told, {"id": 1}) is None
    assert str(outcome(told, {"id": 1}, key=b"4711")) == "done"
    with pytest.raises(ValueError, match="has no limit"):
        limit_key(charge, {"id": 1})
