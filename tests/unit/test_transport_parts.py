"""Small decisions of the transport: what the drain groups, what is remembered, what is a broadcast's, who is needed."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.transport import delayed_messages
from lossless.transport.arrival_buffer import DeliveringChannel
from lossless.transport.broadcast import BroadcastChannel, Broadcasts, PrefetchSlots
from lossless.transport.channel import Channel
from lossless.transport.delayed_messages import DelayedMessages, SendingChannel
from lossless.transport.event_loop_poller import OutageKeeper, PolledChannel, PolledConnection, Poller, PooledChannel
from lossless.transport.heartbeat import HeartbeatKeeper
from lossless.transport.idle_workers import ServedChannel
from lossless.transport.inflight_messages import TakenMessage
from lossless.transport.message_fetch import ConsumingChannel, FetchLimits, FetchLoop
from lossless.transport.prefetch_limit import QoS, SettlingChannel
from lossless.transport.queue_drain import CHUNK, _group_by_list
from lossless.transport.redis_outage import OutageProbe
from lossless.transport.storage_layout import TransportKeys, store_message


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c\x063"]), st.integers(0, 9)), max_size=50))
def test_the_drain_keeps_the_order_of_each_list(entries: list[tuple[str, int]]) -> None:
    given_in = [(store_message(key, b""), b"%d" % number) for key, number in entries]
    grouped = _group_by_list(given_in)
    for key in {key for key, _ in entries}:
        names = [name for found, some in grouped if found == key for name in some]
        assert names == [b"%d" % number for of, number in entries if of == key]


def test_the_drain_moves_in_calls_of_some_milliseconds_and_leaves_what_is_none_of_ours() -> None:
    entries = [(store_message("q", b"x"), b"%d" % number) for number in range(2 * CHUNK + 1)]
    assert [len(names) for _, names in _group_by_list([(b"foreign", b"odd"), *entries])] == [CHUNK, CHUNK, 1]


def test_what_was_put_off_longest_ago_is_left_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_messages, "PUT_OFF_KNOWN", 2)
    hurried: list[bytes] = []

    class Pipe:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def eval(self, text: str, count: int, waiting: str, key: bytes, payload: bytes, raw: bytes) -> None:
            hurried.append(raw)

        def execute(self) -> None: ...

    client: Any = SimpleNamespace(pipeline=lambda transaction: Pipe())
    channel: Any = SimpleNamespace(keys=TransportKeys(), bare_client=lambda: client)
    known = DelayedMessages(channel)
    for raw in (b"1", b"2", b"3"):
        known.note_put_off(TakenMessage("1", "q", "q", raw))
    known.bring_back(lambda: None)
    known.bring_back(lambda: None)
    assert hurried == [b"2", b"3"]


@pytest.mark.parametrize(
    ("tag", "delivered", "holds"),
    [("me.1", True, False), ("of another", True, True), ("of another", False, False)],
)
@pytest.mark.parametrize("consumes", [True, False])
def test_a_broadcasts_tag_is_told_from_an_owners(tag: str, delivered: bool, holds: bool, consumes: bool) -> None:
    owner = SimpleNamespace(owner="me") if consumes else None
    channel: Any = SimpleNamespace(qos=SimpleNamespace(delivers=lambda _: delivered), holder=owner)
    assert Broadcasts(channel).holds(tag) is (holds if consumes else delivered)


@pytest.mark.parametrize(
    ("sent", "now", "readable", "overdue"),
    [(False, 99.0, False, False), (True, 5.0, False, False), (True, 99.0, False, True), (True, 99.0, True, False)],
)
def test_an_answer_is_owed_where_nothing_can_be_read(
    monkeypatch: pytest.MonkeyPatch, sent: bool, now: float, readable: bool, overdue: bool
) -> None:
    """Unread is not unanswered: under `solo` a task keeps the event loop for as long as it runs."""
    connection = SimpleNamespace(send_command=lambda *_: None, can_read=lambda timeout: readable)
    monkeypatch.setattr("lossless.transport.event_loop_poller.monotonic", lambda: 0.0)
    line = PolledConnection(connection, lambda _: None)
    if sent:
        line.send("PING")
    assert line.overdue(now, 10.0) is overdue


def needs(*protocols: type) -> set[str]:
    names: set[str] = set()
    for protocol in protocols:
        names |= {name for name in dir(protocol) if not name.startswith("_")} | set(get_type_hints(protocol))
    return names


#: What an instance alone has.
OF_INSTANCES: dict[type, set[str]] = {
    Channel: {
        "active_fanout_queues",
        "keys",
        "holder",
        "no_ack_queues",
        "hooked_scripts",
        "poller",
        "broadcasts",
        "on_unreadable",
    },
    Poller: {"waits_out_outages"},
}


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [
        (
            Channel,
            (
                ConsumingChannel,
                DeliveringChannel,
                ServedChannel,
                SendingChannel,
                BroadcastChannel,
                PolledChannel,
                PooledChannel,
                SettlingChannel,
            ),
        ),
        (Poller, (FetchLoop,)),
        (QoS, (FetchLimits, PrefetchSlots)),
        (HeartbeatKeeper, (OutageProbe, OutageKeeper)),
    ],
)
def test_each_has_what_the_others_need_of_it(kind: type, protocols: Iterable[type]) -> None:
    """kombu's classes have no types, so a type checker takes anything for them."""
    assert needs(*protocols) - set(dir(kind)) <= OF_INSTANCES.get(kind, set())
