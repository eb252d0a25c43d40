"""One attempt at a delivery tells how it ended; a handler's own calls to its task know the run that they are in."""

from typing import Any

import pytest
from celery.exceptions import WorkerShutdown

from bridge.errors import AlreadySettled
from bridge.formats.delivery import Attempts as Attempted
from bridge.formats.delivery import Batch, Delivery, Message
from tasks import handler
from tasks.declaration.message_task import HandlerRun
from tasks.errors import RetryAsked
from tasks.execution import handler_attempt as attempts_module
from tasks.execution.batch_progress import BatchState
from tasks.execution.handler_attempt import HandlerAttempts

DELIVERY = Delivery(Message("orders", 0, 1, value=b"1"), "unit.attempt", attempts=Attempted(failed=3))

BATCH = Batch("unit.attempt", "orders", 0, (Delivery(Message("orders", 0, 1), "unit.attempt"),))


@handler("orders", name="unit.attempt", bind=True, retry_jitter=False, retry_backoff=4)
def act(self: Any, what: Any) -> Any:
    return what(self)


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(act, "decode_record", lambda record: record.value)
    task: Any = act
    task.push_request(headers={"kafka": {}}, called_directly=False, id="x")
    yield
    task.pop_request()


def attempt(what: Any, **changes: Any) -> Any:
    message = Message("orders", 0, 1, value=what)
    delivery = Delivery(message, "unit.attempt", **{"attempts": Attempted(failed=3), **changes})
    return HandlerAttempts(act, BATCH, changes.pop("last_will", lambda: None), BatchState(BATCH, None)).run(delivery)


def raising(error: BaseException) -> Any:
    def what(_: Any) -> None:
        raise error

    return what


def test_what_the_handler_returned_is_told_with_its_time() -> None:
    ended = attempt(lambda task: "charged")
    assert (ended.returned, ended.error) == ("charged", None)
    assert 0 <= ended.seconds < 5


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), GeneratorExit(), SystemExit(1)])
def test_what_the_handler_raised_is_told_and_goes_no_further(error: BaseException) -> None:
    assert attempt(raising(error)).error is error


def test_work_that_an_earlier_run_has_committed_is_done() -> None:
    assert attempt(raising(AlreadySettled("before"))).error is None


def test_the_end_of_the_worker_is_nobodys_failure() -> None:
    with pytest.raises(WorkerShutdown):
        attempt(raising(WorkerShutdown()))


def test_a_process_that_is_told_to_leave_writes_its_last_will_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(attempts_module, "terminate_handler_fired", lambda: True)
    attempts = HandlerAttempts(act, BATCH, lambda: written.append("will"), BatchState(BATCH, None))
    with pytest.raises(SystemExit):
        attempts.run(Delivery(Message("orders", 0, 1, value=raising(OSError())), "unit.attempt"))
    assert written == ["will"]


def test_a_retry_that_is_asked_for_without_being_thrown_is_why_it_ended() -> None:
    asked = attempt(lambda task: task.retry(throw=False) and None).error
    assert isinstance(asked, RetryAsked)
    # The fourth failure waits for the fourth delay.
    assert asked.delay == 4 * 2**3


def test_what_one_attempt_asked_for_is_not_the_next_ones() -> None:
    attempts = HandlerAttempts(act, BATCH, lambda: None, BatchState(BATCH, None))
    found = []
    for what in (lambda task: task.retry(throw=False) and None, lambda task: "charged"):
        found.append(attempts.run(Delivery(Message("orders", 0, 1, value=what), "unit.attempt")))  # type: ignore[arg-type]
    assert [type(ended.error).__name__ for ended in found] == ["RetryAsked", "NoneType"]


def test_a_run_is_known_to_its_own_request_and_to_no_other() -> None:
    assert HandlerRun.find_current(act) is None
    with HandlerRun(act, failures=2) as run:
        assert HandlerRun.find_current(act) is run
        task: Any = act
        task.push_request(called_directly=False, id="y")
        # The same task once more, called by the handler as a task: that is no delivery of this run.
        assert HandlerRun.find_current(act) is None
        with HandlerRun(act) as inner:
            assert HandlerRun.find_current(act) is inner
        act.pop_request()
        assert HandlerRun.find_current(act) is run
    assert HandlerRun.find_current(act) is None
