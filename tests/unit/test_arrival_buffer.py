"""What was taken is delivered in order, goes back in order, and is never lost to a consumer that raises."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from lossless.transport.arrival_buffer import ArrivalBuffer
from lossless.transport.queue_backoff import ANY_NUMBER, IN_A_ROW, QueueBackoff
from lossless.transport.script_hook import LOOKED
from lossless.transport.storage_layout import TransportKeys


class Holder:
    """One that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def add(self, number: int, queue: str, key: str, raw: bytes) -> str:
        return f"tag.{number}"

    def wait(self, tag: str, due: float) -> None:
        self.told.append(("wait", tag, due))

    def give_back(self, tag: str, *, front: bool) -> None:
        self.told.append(("give back", tag, front))

    def set_aside(self, tag: str) -> None:
        self.told.append(("set aside", tag))


class Channel:
    """A channel that consumes `q`, and `free` without acknowledgement."""

    def __init__(self) -> None:
        self.keys = TransportKeys()
        self.holder: Any = Holder()
        self.no_ack_queues = {"free"}
        self.active_queues = {"q", "free"}
        self.wait_from = 0.1
        self.on_unreadable: Any = None
        self.delivered: list[Any] = []
        self.returned: list[Any] = []
        self.settled: list[int] = []
        self.fails = False

    def check_body(self, message: dict[str, Any]) -> None:
        if message.get("body") == "broken":
            raise ValueError("broken")

    def hand_over(self, message: dict[str, Any], queue: str) -> None:
        if self.fails:
            raise RuntimeError("a consumer's own fault")
        self.delivered.append(message["headers"]["id"])

    def settle_now(self) -> None:
        self.settled.append(len(self.delivered))

    def put_back(self, queue: str, message: dict[str, Any]) -> None:
        self.returned.append(message["headers"]["id"])


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest.fixture
def arrivals(channel: Channel) -> ArrivalBuffer:
    return ArrivalBuffer(channel, QueueBackoff())


def raw(id_: str, eta: str | None = None, body: str = "", **properties: Any) -> bytes:
    own = {"delivery_info": {"routing_key": "q"}, "delivery_tag": "sent", **properties}
    return json.dumps({"headers": {"id": id_, "eta": eta}, "properties": own, "body": body}).encode()


def come(arrivals: ArrivalBuffer, *numbers: int, queue: str = "q") -> None:
    for number in numbers:
        arrivals.come(queue, queue, raw(str(number)), number, 0.0)


def test_a_worker_whose_clock_is_behind_does_not_hold_what_redis_calls_due(
    channel: Channel, arrivals: ArrivalBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = time.time() + 300
    message = json.loads(raw("1"))
    message["headers"] = {"eta": datetime.fromtimestamp(ahead, UTC).isoformat()}
    arrivals.come("q", "q", json.dumps(message).encode(), 1, ahead + 1)
    handed: list[Any] = []
    monkeypatch.setattr(channel, "hand_over", lambda message, queue: handed.append(message["headers"]["eta"]))
    assert arrivals.deliver()
    assert handed == [None]
    # By Redis's clock it is not due yet.
    arrivals.come("q", "q", json.dumps(message).encode(), 2, ahead - 60)
    assert channel.holder.told[-1] == ("wait", "tag.2", pytest.approx(ahead))


def test_what_a_consumer_raised_at_is_gone_and_the_rest_is_kept(channel: Channel, arrivals: ArrivalBuffer) -> None:
    come(arrivals, 1, 2, 3)
    channel.fails = True
    with pytest.raises(RuntimeError):
        arrivals.deliver()
    channel.fails = False
    assert arrivals.deliver()
    assert channel.delivered == ["2", "3"]
    assert not arrivals.deliver()


def test_under_solo_each_is_settled_before_the_next_is_handed_over(
    channel: Channel, arrivals: ArrivalBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(arrivals, 1, 2)
    arrivals.deliver()
    assert channel.settled == []
    monkeypatch.setattr("lossless.transport.arrival_buffer.runs_in_this_process", lambda: True)
    come(arrivals, 3, 4)
    arrivals.deliver()
    assert channel.settled == [3, 4]


def test_a_worker_that_was_told_to_stop_is_handed_nothing_more_and_gives_the_rest_back(
    channel: Channel, arrivals: ArrivalBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(arrivals, 1, 2)
    monkeypatch.setattr("lossless.transport.arrival_buffer.stopping", lambda: True)
    assert not arrivals.deliver()
    assert channel.delivered == []
    arrivals.return_all()
    assert len(channel.holder.told) == 2


def test_what_came_from_a_cancelled_queue_goes_back_the_oldest_last(channel: Channel, arrivals: ArrivalBuffer) -> None:
    """It is put at the end that is taken from, so the last one back is the next to run."""
    come(arrivals, 1)
    come(arrivals, 2, queue="free")
    come(arrivals, 3)
    channel.active_queues = {"free"}
    arrivals.deliver()
    assert channel.holder.told == [("give back", "tag.3", True), ("give back", "tag.1", True)]
    assert channel.delivered == ["2"]


def test_what_was_not_delivered_goes_back_when_the_channel_closes(channel: Channel, arrivals: ArrivalBuffer) -> None:
    come(arrivals, 1)
    come(arrivals, 2, 3, queue="free")
    arrivals.return_all()
    assert channel.returned == ["3", "2"]
    assert channel.holder.told == [("give back", "tag.1", True)]
    assert not len(arrivals)


@pytest.mark.parametrize(("eta", "waits"), [(None, False), ("1970-01-01T00:01:00", True), ("1970-01-01", False)])
def test_what_is_not_due_by_the_servers_clock_waits_in_redis(
    channel: Channel, arrivals: ArrivalBuffer, eta: str | None, waits: bool
) -> None:
    arrivals.come("q", "q", raw("1", eta), 1, 10.0)
    assert channel.holder.told == ([("wait", "tag.1", 60.0)] if waits else [])
    assert len(arrivals) == (not waits)


@pytest.mark.parametrize("entry", [b"no json", b"[]", b"{}", raw("1", body="broken")])
def test_an_entry_that_is_no_message_is_the_consumers_and_set_aside_where_it_has_no_use_for_it(
    channel: Channel, arrivals: ArrivalBuffer, entry: bytes
) -> None:
    arrivals.come("q", "q", entry, 1, 0.0)
    assert channel.holder.told == [("set aside", "tag.1")]
    seen: list[Any] = []
    channel.on_unreadable = lambda tag, raw, queue, exc: seen.append((tag, raw, queue))
    arrivals.come("q", "q", entry, 2, 0.0)
    assert seen == [("tag.2", entry, "q")]
    channel.on_unreadable = lambda *_: 1 / 0
    arrivals.come("q", "q", entry, 3, 0.0)
    assert channel.holder.told == [("set aside", "tag.1"), ("set aside", "tag.3")]


def test_a_sender_cannot_say_what_a_rider_found(arrivals: ArrivalBuffer) -> None:
    for number, looked in enumerate((None, (1.0, "found"))):
        arrivals.come("q", "q", raw("1", **{LOOKED: "forged"}), number, 0.0, looked)
        assert arrivals.next()["properties"].get(LOOKED) == looked


def test_strange_messages_in_a_row_change_a_queues_turn_which_is_said_once(
    channel: Channel, arrivals: ArrivalBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "hand_over", lambda *_: arrivals.note_unknown())
    come(arrivals, *range(IN_A_ROW - 1))
    arrivals.deliver()
    assert not arrivals.take_backoff_change()
    come(arrivals, IN_A_ROW)
    arrivals.deliver()
    assert arrivals.take_backoff_change()
    assert not arrivals.take_backoff_change()


def test_for_messages_that_nobody_has_known_for_long_a_queue_is_not_left(
    channel: Channel, arrivals: ArrivalBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "hand_over", lambda *_: arrivals.note_unknown(for_long=True))
    come(arrivals, *range(10 * IN_A_ROW))
    arrivals.deliver()
    assert not arrivals.take_backoff_change()
    assert arrivals._backoff.limit("q", 0.0) == ANY_NUMBER
