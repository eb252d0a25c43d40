"""`Breaker` at a handler: what it refuses, what an error says of a dependency, and what becomes of deliveries."""

from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery import Attempts, Delivery, Message
from bridge.ledger.breaker_state import BreakerStatus, BreakerTerms, RunResults
from tasks import Breaker, DeadLetter, HandlerError, RetryLater, StopConsuming
from tasks.declaration.handler_declaration import declare_handler
from tasks.errors import Undecodable
from tasks.execution.breaker_guard import BREAKER_PAUSE, BreakerGuard
from tasks.policy.failure_decision import EXHAUSTED, PERMANENT, DeadLetterDelivery, RetryDelivery, decide_failure
from tasks.policy.retry_policy import RetryPolicy

DOWN = BreakerStatus(before="open", state="open", since=1000.0, granted=False)
DELIVERY = Delivery(Message("orders", 0, 1), "charge")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dependency": ""}, "letters, digits"),
        ({"dependency": "the bank"}, "letters, digits"),
        ({"dependency": None}, "letters, digits"),
        ({"failures": 1}, "failures takes a whole number from 2 to 500; not 1"),
        ({"failures": 2.5}, "failures takes a whole number"),
        ({"ratio": 0}, "ratio takes a number from 0.01 to 1"),
        ({"ratio": True}, "ratio takes a number"),
        ({"window": float("nan")}, "window takes a number from 1 to 600"),
        ({"probe_every": "10"}, "probe_every takes a number"),
        ({"ramp": 0}, "ramp takes a number from 1 to 3,600"),
        ({"failures_of": ()}, "classes of exceptions"),
        ({"failures_of": "ConnectionError"}, "classes of exceptions"),
    ],
)
def test_what_is_out_of_range_is_refused_at_import(given: dict[str, Any], said: str):
    with pytest.raises(HandlerError, match=said):
        Breaker(**{"dependency": "bank", **given})


def test_two_handlers_may_not_give_one_dependency_different_numbers():
    app = Celery("breakers", set_as_current=False)
    declare_handler(app, ["orders"], {"name": "one", "breaker": Breaker("bank")})(print_it)
    declare_handler(app, ["orders"], {"name": "two", "breaker": Breaker("bank", failures_of=OSError)})(print_it)
    declare_handler(app, ["orders"], {"name": "three", "breaker": Breaker("mail", failures=3)})(print_it)
    with pytest.raises(HandlerError, match="four: Breaker\\('bank'\\) has other numbers at another handler"):
        declare_handler(app, ["orders"], {"name": "four", "breaker": Breaker("bank", failures=3)})(print_it)
    with pytest.raises(HandlerError, match="breaker takes a Breaker"):
        declare_handler(app, ["orders"], {"name": "five", "breaker": "bank"})(print_it)
    task: Any = app.tasks["one"]
    assert task.needs == ("bank",)


def print_it(order: object) -> None:
    print(order)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionError(), "failed"),
        (ValueError(), "dead"),
        (DeadLetter("of this one"), "nothing"),
        (Undecodable("what is this"), "nothing"),
        (RetryLater(5), "nothing"),
        (StopConsuming("stop"), "nothing"),
    ],
)
def test_what_a_retry_may_cure_speaks_of_the_dependency_and_what_is_said_of_one_message_does_not(
    error: Exception, says: str
):
    policy = RetryPolicy(dead_letter_for=(ValueError,))
    assert Breaker("bank").says(error, decide_failure(policy, error, 0)) == says


def test_a_failure_that_was_the_last_retry_is_a_failure():
    assert Breaker("bank").says(ConnectionError(), DeadLetterDelivery(EXHAUSTED)) == "failed"
    assert Breaker("bank").says(ValueError(), DeadLetterDelivery(PERMANENT)) == "dead"


@pytest.mark.parametrize("kind", [TypeError, KeyError, NameError, AttributeError, UnboundLocalError])
def test_an_error_of_the_code_opens_no_breaker_unless_it_is_named(kind: type[Exception]):
    for decision in (RetryDelivery(1), DeadLetterDelivery(EXHAUSTED), DeadLetterDelivery(PERMANENT)):
        assert Breaker("bank").says(kind("x"), decision) == "nothing"
        assert Breaker("bank", failures_of=kind).says(kind("x"), decision) == "failed"


def test_where_classes_are_named_no_other_error_counts():
    breaker = Breaker("bank", failures_of=ConnectionError)
    assert breaker.says(ConnectionError(), RetryDelivery(1)) == "failed"
    assert breaker.says(ValueError(), RetryDelivery(1)) == "nothing"
    assert breaker.says(ValueError(), DeadLetterDelivery(PERMANENT)) == "nothing"


class FakeBreakers:
    """Answers what it is told to, and keeps what it was told."""

    def __init__(self) -> None:
        self.known = BreakerStatus()
        self.told: list[tuple[RunResults, str]] = []
        self.silent = False
        self.asked = 0
        self.within: list[tuple[float, bool]] = []

    def read_statuses(self, terms: dict[str, BreakerTerms]) -> dict[str, BreakerStatus]:
        self.asked += 1
        if self.silent:
            raise LedgerUnavailable("no answer")
        return dict.fromkeys(terms, self.known)

    def admit(self, name: str, terms: BreakerTerms, probe: str) -> BreakerStatus:
        self.within.append((terms.probe_within, terms.probe_ends))
        return self.read_statuses({name: terms})[name]

    def report(self, name: str, terms: BreakerTerms, ended: RunResults, probe: str = "") -> BreakerStatus:
        self.told.append((ended, probe))
        return self.read_statuses({name: terms})[name]


@pytest.fixture
def breakers() -> FakeBreakers:
    return FakeBreakers()


@pytest.fixture
def breaking(breakers: FakeBreakers, monkeypatch: pytest.MonkeyPatch) -> BreakerGuard:
    monkeypatch.setattr(BreakerGuard, "_seen", {})
    made: Any = breakers
    return BreakerGuard(Breaker("bank"), "bridge", made, lambda _: None)


def test_while_all_is_well_nobody_is_asked_for_each_message(breaking: BreakerGuard, breakers: FakeBreakers):
    for _ in range(1000):
        assert breaking.admits()
        breaking.note_success()
    assert breakers.asked <= 4


def test_while_it_is_down_a_failure_spends_nothing(breaking: BreakerGuard, breakers: FakeBreakers):
    decision = breaking.decide(DELIVERY, ConnectionError(), RetryDelivery(60))
    assert decision == RetryDelivery(60)
    breakers.known = DOWN
    assert breaking.decide(DELIVERY, ConnectionError(), RetryDelivery(60)) == RetryDelivery(BREAKER_PAUSE, spent=False)
    assert breaking.decide(DELIVERY, ConnectionError(), DeadLetterDelivery(EXHAUSTED)) == RetryDelivery(
        BREAKER_PAUSE, spent=False
    )
    assert breaking.decide(DELIVERY, DeadLetter("broken"), DeadLetterDelivery(PERMANENT)) == DeadLetterDelivery(
        PERMANENT
    )
    assert [ended.failed for ended, _ in breakers.told] == [(DELIVERY.identity,)] * 3


def test_a_probe_tells_how_it_ended_also_where_that_says_nothing(breaking: BreakerGuard, breakers: FakeBreakers):
    breakers.known = DOWN._replace(granted=True)
    assert breaking.admits()
    breaking.decide(DELIVERY, DeadLetter("broken"), DeadLetterDelivery(PERMANENT))
    ((ended, probe),) = breakers.told
    assert ended.unclear
    assert probe


@pytest.mark.parametrize(("limit", "within"), [(None, 30.0), (20.0, 30.0), (300.0, 301.0)])
def test_no_probe_is_joined_before_its_time_limit_has_ended_it(
    breakers: FakeBreakers, monkeypatch: pytest.MonkeyPatch, limit: float | None, within: float
):
    monkeypatch.setattr(BreakerGuard, "_seen", {})
    breakers.known = DOWN._replace(granted=True)
    made: Any = breakers
    assert BreakerGuard(Breaker("bank"), "bridge", made, lambda _: None, limit).admits()
    assert breakers.within == [(within, limit is not None)]


def test_what_may_not_run_is_not_asked_for_one_by_one(breaking: BreakerGuard, breakers: FakeBreakers):
    breakers.known = DOWN
    assert not any(breaking.admits() for _ in range(500))
    assert breakers.asked == 2


def test_without_redis_all_runs_as_without_a_breaker(breaking: BreakerGuard, breakers: FakeBreakers):
    breakers.silent = True
    assert breaking.admits()
    assert breaking.decide(DELIVERY, ConnectionError(), RetryDelivery(60)) == RetryDelivery(60)
    breaking.note_success()


@pytest.mark.parametrize(
    ("first", "attempts"),
    [(990.0, Attempts(failed=3, lost=1)), (999.0, Attempts(lost=1, postponed=3)), (None, Attempts(failed=3, lost=1))],
)
def test_what_failed_in_the_outage_before_it_was_known_is_given_back(
    breaking: BreakerGuard, first: float | None, attempts: Attempts
):
    breaking._dependency.known = DOWN
    failing = replace(
        DELIVERY, attempts=Attempts(failed=3, lost=1), first_failed_at=None if first is None else int(first * 1000)
    )
    forgiven = breaking.forgive(failing)
    assert forgiven.attempts == attempts
    assert forgiven is failing or forgiven.message.attempts == attempts


def test_a_handler_without_a_breaker_asks_nobody():
    breaking = BreakerGuard(None, "bridge", None, lambda _: None)
    assert breaking.admits()
    breaking.note_success()
    assert breaking.decide(DELIVERY, ConnectionError(), RetryDelivery(60)) == RetryDelivery(60)
    assert breaking.forgive(DELIVERY) is DELIVERY


@pytest.mark.parametrize(
    ("before", "state", "said"),
    [
        ("closed", "open", "circuit breaker of bank open: 10 deliveries failed"),
        ("open", "probing", "one delivery tries"),
        ("probing", "open", "stays open"),
        ("probing", "ramping", "bank responds"),
        ("ramping", "closed", "circuit breaker of bank closed after 60 s"),
    ],
)
def test_each_change_is_one_line_of_the_log(before: Any, state: Any, said: str):
    found = BreakerStatus(before, state, since=1000.0, until=1060.0, why="10 deliveries failed").words("bank")
    assert found is not None
    assert said in found[1]
    assert BreakerStatus(state, state).words("bank") is None
