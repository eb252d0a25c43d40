"""On a transport without `replace`: a successor is published first, and then its message is acknowledged."""

import threading
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from kombu.transport import memory, pyamqp

from lossless.worker import message_replacement
from lossless.worker.message_burial import Successor, make_comeback
from lossless.worker.message_replacement import (
    FOREIGN_ERRORS,
    MessageReplacement,
    pending_replacements,
)

SUCCESSOR = Successor(
    why="it failed", body="", content_type="application/json", content_encoding="utf-8", headers={}, properties={},
    exchange="", routing_key="q", queue=None, eta=None,
)  # fmt: skip


class Channel:
    """One that fails as often as it is told to."""

    connection = SimpleNamespace(connection_errors=(OperationalError,), channel_errors=())
    closed = False

    def __init__(self) -> None:
        self.acts: list[str] = []
        #: What comes of the next acts; None: nothing wrong.
        self.errors: list[Exception | None] = []

    def prepare_message(self, body: Any, **_: Any) -> dict[str, Any]:
        return {}

    def basic_publish(self, *_: Any) -> None:
        self._act("publish")

    def ack(self) -> None:
        self._act("ack")

    def requeue(self) -> None:
        self.acts.append("requeue")

    def _act(self, name: str) -> None:
        if self.errors and (error := self.errors.pop(0)):
            raise error
        self.acts.append(name)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Any]]:
    """What the event loop was asked to do later."""
    calls: list[tuple[float, Any]] = []
    hub = SimpleNamespace(
        call_later=lambda pause, act: calls.append((pause, act)), call_soon=lambda act, *args: act(*args)
    )
    monkeypatch.setattr(message_replacement, "get_event_loop", lambda: hub)
    return calls


def replace(channel: Channel) -> MessageReplacement:
    message = SimpleNamespace(channel=channel, delivery_tag="1", ack=channel.ack, requeue=channel.requeue)
    made = MessageReplacement(message, SUCCESSOR)
    made.start()
    return made


def go_on(later: list[tuple[float, Any]], times: int) -> None:
    for _ in range(times):
        later.pop(0)[1]()


def test_it_is_published_and_then_acknowledged(later: list[Any]) -> None:
    channel = Channel()
    made = replace(channel)
    assert channel.acts == ["publish", "ack"]
    assert made not in pending_replacements
    assert not later


def in_a_thread_beside_a_loop_with_no_further_turn(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    left: list[Any] = []
    hub = SimpleNamespace(call_soon=lambda act, *_: left.append(act))
    monkeypatch.setattr(message_replacement, "get_event_loop", lambda: hub)
    thread = threading.Thread(target=replace, args=(channel,))
    thread.start()
    thread.join()
    return left


def test_on_our_transport_a_pools_thread_decides_it_at_once_and_wakes_the_event_loop(
    later: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for the loop's next turn would be given back by a worker that is told to stop, and run again."""
    channel = Channel()
    channel.encode_body = lambda body, encoding: (body, encoding)  # type: ignore[attr-defined]
    channel.body_encoding = None  # type: ignore[attr-defined]
    channel.prepare_message = lambda *_, **__: {"body": "", "properties": {"delivery_info": {}}}  # type: ignore[method-assign]
    channel.replace = lambda *_, **__: channel.acts.append("replace")  # type: ignore[attr-defined]
    left = in_a_thread_beside_a_loop_with_no_further_turn(channel, monkeypatch)
    assert channel.acts == ["replace"]
    assert len(left) == 1


def test_elsewhere_a_pools_thread_leaves_the_channel_to_the_event_loop(
    later: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel()
    left = in_a_thread_beside_a_loop_with_no_further_turn(channel, monkeypatch)
    assert channel.acts == []
    left.pop()()
    assert channel.acts == ["publish", "ack"]


def test_what_is_published_is_not_published_again_when_its_ack_fails(later: list[Any]) -> None:
    channel = Channel()
    channel.errors = [None, OperationalError("away")]
    replace(channel)
    assert channel.acts == ["publish"]
    go_on(later, 1)
    assert channel.acts == ["publish", "ack"]


def test_a_broker_that_is_away_is_tried_without_end_with_pauses_that_grow(later: list[Any]) -> None:
    channel = Channel()
    channel.errors = [OperationalError("away") for _ in range(FOREIGN_ERRORS + 5)]
    made = replace(channel)
    pauses = []
    while later:
        pauses.append(later[0][0])
        go_on(later, 1)
    assert pauses == [1, 2, 4, 8, 16, *[30] * 10][: FOREIGN_ERRORS + 5]
    assert channel.acts == ["publish", "ack"]
    assert made not in pending_replacements


def test_an_error_that_is_not_the_brokers_is_not_tried_for_ever_and_the_message_is_given_back(later: list[Any]) -> None:
    channel = Channel()
    channel.errors = [
        KeyError("no channel") for _ in range(100)
    ]  # kombu's Redis transport has it among its connection errors
    channel.connection = SimpleNamespace(connection_errors=(KeyError,), channel_errors=())
    made = replace(channel)
    while later:
        go_on(later, 1)
    assert 100 - len(channel.errors) == FOREIGN_ERRORS
    assert channel.acts == ["requeue"]
    assert made not in pending_replacements


def test_a_closed_channel_has_given_the_message_back(later: list[Any]) -> None:
    channel = Channel()
    channel.closed = True
    assert replace(channel) not in pending_replacements
    assert channel.acts == []


@pytest.mark.parametrize("transport", [pyamqp, memory])
def test_what_comes_back_keeps_its_priority_and_id_on_every_kind_of_broker(later: list[Any], transport: Any):
    channel = Channel()
    published: list[Any] = []
    channel.prepare_message = MethodType(transport.Channel.prepare_message, SimpleNamespace(default_priority=0))  # type: ignore[method-assign]
    channel.basic_publish = lambda message, *_: published.append(message)  # type: ignore[method-assign]
    taken = SimpleNamespace(
        headers={"task": "t", "id": "i"}, body="[]", content_type="application/json", content_encoding="utf-8",
        delivery_info={"routing_key": "q"}, properties={"priority": 7, "correlation_id": "i", "delivery_mode": 2},
        channel=channel, delivery_tag="1", ack=channel.ack,
    )  # fmt: skip
    MessageReplacement(taken, make_comeback(taken, 1.0, "its process was lost", lost=1)).start()
    (message,) = published
    properties = message.properties if transport is pyamqp else message["properties"]
    assert (properties["priority"], properties["correlation_id"], properties["delivery_mode"]) == (7, "i", 2)
    assert channel.acts == ["ack"]
    assert not later
