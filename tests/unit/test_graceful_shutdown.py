"""A worker's last seconds, and what of other people's it puts back."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from lossless.worker import graceful_shutdown
from lossless.worker.graceful_shutdown import GIVE_BACK_AFTER, begin_shutdown, list_unstarted_requests
from lossless.worker.message_burial import UNKNOWN_SINCE
from lossless.worker.unknown_tasks import UnknownTasks, identify_message


class Timer:
    def __init__(self) -> None:
        self.calls: list[tuple[float, Any, tuple[Any, ...]]] = []

    def call_after(self, pause: float, act: Any, args: tuple[Any, ...] = ()) -> None:
        self.calls.append((pause, act, args))

    def pass_by(self) -> None:
        calls, self.calls = self.calls, []
        for _, act, args in calls:
            act(*args)


class Request:
    """A request that the pool was given, or was not."""

    worker_pid = 7

    def __init__(self, *, given: bool = False, acknowledged: bool = False, fails: bool = False) -> None:
        self._apply_result = object() if given else None
        self.acknowledged = acknowledged
        self.fails = fails
        self.cancelled = False
        self.message = SimpleNamespace(requeue=self._requeue)

    def _requeue(self) -> None:
        if self.fails:
            raise ConnectionError

    def cancel(self, pool: Any, emit_retry: bool) -> None:
        self.cancelled = True


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    requests = {"waits": Request(), "runs": Request(given=True), "settled": Request(acknowledged=True)}
    monkeypatch.setattr(state, "requests", requests)
    monkeypatch.setattr(state, "active_requests", {requests["runs"]})
    monkeypatch.setattr(state, "should_terminate", None)
    return requests


def test_what_the_pool_has_not_is_given_back_and_what_a_rate_holds_back_too(known: dict[str, Any]) -> None:
    limited = Request()
    buckets = {"a": SimpleNamespace(contents=[(limited, 1)]), "b": None}
    assert list_unstarted_requests(buckets) == [limited, known["waits"]]


def test_one_that_cannot_be_given_back_keeps_no_other() -> None:
    timer, requests = Timer(), [Request(fails=True), Request()]
    begin_shutdown(timer, None, requests, 0)
    assert [pause for pause, *_ in timer.calls] == [GIVE_BACK_AFTER]
    timer.pass_by()
    assert [request.acknowledged for request in requests] == [False, True]


def test_what_still_runs_when_its_time_is_over_is_stopped_and_then_killed(known: dict[str, Any]) -> None:
    killed: list[int] = []
    timer, pool = Timer(), SimpleNamespace(terminate_job=lambda pid, signal: killed.append(pid))
    begin_shutdown(timer, pool, [], 20)
    assert [pause for pause, *_ in timer.calls] == [GIVE_BACK_AFTER, 20]
    timer.pass_by()
    assert known["runs"].cancelled
    assert [pause for pause, *_ in timer.calls] == [graceful_shutdown.KILL_AFTER]
    timer.pass_by()
    assert killed == [7]


def test_a_worker_that_stops_cold_has_no_time_to_give(known: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "should_terminate", 1)
    timer = Timer()
    begin_shutdown(timer, None, [], 20)
    assert len(timer.calls) == 1


# ---- unknown_tasks


class Qos:
    def __init__(self) -> None:
        self.more = 0

    def increment_eventually(self) -> None:
        self.more += 1

    def decrement_eventually(self) -> None:
        self.more -= 1


@pytest.mark.parametrize(
    ("headers", "long", "due", "marked"),
    [
        ({}, False, 5001.0, {UNKNOWN_SINCE: 5_000_000}),
        ({UNKNOWN_SINCE: 4_000_000}, True, 5500.0, {UNKNOWN_SINCE: 4_000_000}),
        ({UNKNOWN_SINCE: 1_000_000}, True, 5600.0, {UNKNOWN_SINCE: 1_000_000}),
        (None, False, 5001.0, None),
    ],
    ids=["new", "seen by another worker", "seen for long", "no headers"],
)
def test_on_this_transport_a_stranger_waits_in_redis_by_its_clock_the_longer_the_older_it_is(
    headers: Any, long: bool, due: float, marked: Any
) -> None:
    told: list[Any] = []
    channel = SimpleNamespace(now=lambda: 5000.0, put_off=lambda *put: told.append(put), note_unknown=told.append)
    message = SimpleNamespace(_state="RECEIVED", headers=headers)
    UnknownTasks(SimpleNamespace(qos=None, timer=None)).leave(channel, "tag", "theirs", "a message", "1", message)
    assert told == [long, ("tag", due, marked)]
    assert message._state == "REQUEUED"


def test_on_another_transport_it_waits_here_and_takes_no_slot() -> None:
    requeued: list[None] = []
    qos, timer = Qos(), Timer()
    message = SimpleNamespace(requeue=lambda: requeued.append(None))
    unknown_tasks = UnknownTasks(SimpleNamespace(qos=qos, timer=timer))
    unknown_tasks.leave(SimpleNamespace(), "tag", "theirs", "a message", "1", message)
    assert (qos.more, requeued) == (1, [])
    timer.pass_by()
    assert (qos.more, requeued) == (0, [None])


def test_a_message_is_known_again_after_it_was_put_back() -> None:
    def made(**fields: Any) -> Any:
        return SimpleNamespace(**{"headers": {}, "body": b"", **fields})

    assert identify_message(made(headers={"id": "a"})) == identify_message(made(headers={"id": "a"}, body=b"x"))
    assert identify_message(made(body=b"x")) == identify_message(made(body=b"x", headers=None))
    assert identify_message(made(headers={"id": ["no id"]}, body=b"x")) != identify_message(made(body=b"y"))
