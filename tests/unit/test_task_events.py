"""What a dispatcher sends at once, what together, and what whoever has come is told of."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from lossless.transport import task_events
from lossless.transport.task_events import GATHERED_FOR, EventDispatcher


class Loop:
    """An event loop whose time passes when it is told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.on_close: set[Callable[..., object]] = set()
        self._timers: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        callback(*args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self._timers.append((self.now + delay, callback, args))

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((timer for timer in self._timers if timer[0] <= end), key=lambda timer: timer[0]):
            self._timers.remove(due[0])
            self.now = due[0][0]
            due[0][1](*due[0][2])
        self.now = end


class Sending:
    """A worker's dispatcher, and what it has published."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop()
        self.listeners = 1
        self.requests: list[Any] = []
        self.published: list[Any] = []
        monkeypatch.setattr(task_events, "get_event_loop", lambda: self.loop)
        monkeypatch.setattr(task_events, "monotonic", lambda: self.loop.now)
        monkeypatch.setattr(task_events, "known_requests", lambda: tuple(self.requests))
        monkeypatch.setattr(task_events, "_counts_listeners", lambda _: True)
        monkeypatch.setattr(task_events, "_read_listeners", lambda _: self.listeners)
        app = Celery(broker="memory://", set_as_current=False)
        self.dispatcher: Any = EventDispatcher(
            app.connection_for_write(), app=app, buffer_group=["task"], on_send_buffered=lambda: self.dispatcher.flush()
        )
        self.dispatcher.producer = SimpleNamespace(publish=lambda event, **_: self.published.append(event))

    def send(self, type: str, **fields: Any) -> None:
        self.dispatcher.send(type, **fields)

    def told(self) -> list[list[tuple[str, str]]]:
        """The tasks' events that were published since this was asked last, by publication."""
        found, self.published = self.published, []
        return [[(event["type"], event["uuid"]) for event in some] for some in found if isinstance(some, list) and some]

    def begin(self, name: str) -> None:
        """A task begins, as Celery's request tells of it."""
        request = SimpleNamespace(
            eventer=self.dispatcher, task=SimpleNamespace(send_events=True), time_start=1.0, id=name, name="shop.pay",
            argsrepr="", kwargsrepr="", root_id=name, parent_id=None, request_dict={}, eta=None, expires=None,
        )  # fmt: skip
        self.requests.append(request)
        self.send("task-started", uuid=name)


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(monkeypatch)


def test_whoever_listens_by_the_time_a_task_begins_is_told_of_it_once(sending: Sending) -> None:
    sending.listeners = 0
    sending.send("task-received", uuid="1")
    sending.loop.passes(2.0)
    sending.told()
    sending.listeners = 1
    sending.begin("1")
    sending.loop.passes(1.0)
    assert sending.told() == [[("task-received", "1"), ("task-started", "1")]]


def test_a_task_that_is_not_known_yet_is_told_of_by_the_event_that_asked(sending: Sending) -> None:
    sending.listeners = 0
    sending.send("task-received", uuid="1")
    sending.loop.passes(2.0)
    sending.told()
    sending.listeners = 1
    sending.send("task-received", uuid="2")
    sending.loop.passes(1.0)
    assert sending.told() == [[("task-received", "2")]]


@pytest.mark.parametrize("after", [0.05, 0.2, 0.5])
def test_after_a_heartbeat_that_was_asked_for_the_listener_is_looked_for_again(sending: Sending, after: float) -> None:
    """Celery's receiver has workers send one a moment before it listens."""
    sending.listeners = 0
    sending.begin("1")
    sending.loop.passes(2.0)
    sending.send("worker-heartbeat", freq=5)
    sending.told()
    sending.loop.passes(after - 0.01)
    sending.listeners = 1
    sending.loop.passes(0.02 + GATHERED_FOR)
    assert sending.told() == [[("task-received", "1"), ("task-started", "1")]]


def test_what_comes_after_a_quiet_moment_is_sent_at_once_and_what_follows_together(sending: Sending) -> None:
    sending.send("task-received", uuid="1")
    assert sending.told() == [[("task-received", "1")]]
    for name in ("2", "3"):
        sending.send("task-received", uuid=name)
    assert sending.told() == []
    sending.loop.passes(GATHERED_FOR)
    assert sending.told() == [[("task-received", "2"), ("task-received", "3")]]
    # While they flow they go together, however short the pauses are.
    sending.send("task-received", uuid="4")
    assert sending.told() == []
    sending.loop.passes(2 * GATHERED_FOR)
    assert sending.told() == [[("task-received", "4")]]
    sending.send("task-received", uuid="5")
    assert sending.told() == [[("task-received", "5")]]


def test_whoever_has_seen_a_heartbeat_is_noticed(sending: Sending) -> None:
    sending.listeners = 0
    sending.begin("1")
    sending.published.clear()
    sending.send("worker-heartbeat", active=1)
    assert [bool(event) for event in sending.published] == [True, False]  # the question comes after
