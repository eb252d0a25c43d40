"""What a holder answers for: nothing that it was told is forgotten before Redis has answered."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from lossless.lua import Script
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.script_hook import RETRY_AFTER, HookStep
from lossless.transport.storage_layout import TransportKeys
from lossless.transport.transport_scripts import ACKNOWLEDGE, REGISTER_OWNER, SETTLE_MESSAGES, UNREGISTER_OWNER

RAW = b'{"headers": {}, "properties": {"delivery_info": {}}}'


class Redis:
    """One that notes which scripts it ran, and fails when it is told to."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, list[Any]]] = []
        self.away = False
        self.held: list[bytes] = []
        self.refuses = ""
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        if self.away:
            raise redis.ConnectionError("away")
        self.meanwhile()
        name = {REGISTER_OWNER.sha: "register", SETTLE_MESSAGES.sha: "settle", UNREGISTER_OWNER.sha: "leave"}.get(
            script.sha, "ack"
        )
        self.ran.append((name, args))
        return {"register": self.held, "settle": [], "leave": 0, "ack": self._acknowledged(args)}[name]

    def _acknowledged(self, args: list[Any]) -> bytes:
        with_step = args[args[0] + 1 :: 4] if self.refuses else []
        return f"{''.join(f'{field},' for field in with_step)}\n{self.refuses}".encode() if with_step else b""

    def count(self, name: str) -> int:
        return sum(1 for ran, _ in self.ran if ran == name)


@pytest.fixture
def server() -> Redis:
    return Redis()


@pytest.fixture
def holder(server: Redis) -> MessageHolder:
    return holder_at(server)


def holder_at(server: Redis, wake: Callable[[], None] = lambda: None) -> MessageHolder:
    return MessageHolder(TransportKeys(), server.run, wake, 30)


def test_the_first_messages_that_redis_lost_are_named_by_their_tasks(
    server: Redis, holder: MessageHolder, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 8):
        raw = b'{"headers": {"id": "orders-3-%d:charge"}, "properties": {"delivery_info": {}}}' % number
        holder.add(number, "q", "q", RAW if number == 2 else b"not json" if number == 3 else raw)
    holder.ack(holder.add(8, "q", "q", RAW))  # it is gone because it has ended, and only the answer is missing
    server.held = [b"6"]
    holder.compare()
    (record,) = caplog.records
    assert record.getMessage() == (
        "6 messages held here are no longer in Redis: it lost its last writes, or took this worker for dead; their "
        "tasks go on here, and another worker may run them too. The first: 'orders-3-1:charge', a message without "
        "an id in queue 'q', a message without an id in queue 'q', 'orders-3-4:charge', 'orders-3-5:charge'"
    )


def test_the_scripts_that_are_told_apart_here_are_all_that_a_holder_settles_by() -> None:
    assert len({script.sha for script in (ACKNOWLEDGE, REGISTER_OWNER, SETTLE_MESSAGES, UNREGISTER_OWNER)}) == 4


@pytest.mark.parametrize(
    "second",
    [
        lambda holder, tag: holder.ack(tag),
        lambda holder, tag: holder.give_back(tag, front=True),
        lambda holder, tag: holder.wait(tag, 1.0),
        lambda holder, tag: holder.set_aside(tag),
        lambda holder, tag: holder.replace(tag, "q", "q", b"", None),
    ],
)
def test_the_first_decision_about_a_message_stands(
    server: Redis, holder: MessageHolder, second: Callable[[MessageHolder, str], None]
) -> None:
    """An ack would remove a message whose replacement Redis has not answered yet."""
    tag = holder.add(1, "q", "q", RAW)
    holder.replace(tag, "other", "other", b"new", None)
    second(holder, tag)
    holder.settle()
    assert server.ran == [("settle", ["back", "1", "other", b"new", "0.0", ""])]
    assert holder.entry(tag) is None


def test_what_redis_did_not_answer_is_sent_again(server: Redis, holder: MessageHolder) -> None:
    tags = [holder.add(number, "q", "q", RAW) for number in (1, 2)]
    holder.ack(tags[0])
    holder.wait(tags[1], 5.0)
    server.away = True
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            holder.settle()
    assert holder.tags == tuple(tags)
    server.away = False
    holder.settle()
    assert (server.count("ack"), server.count("settle"), holder.tags) == (1, 1, ())


def test_an_ack_wakes_the_keeper_unless_it_rides(server: Redis) -> None:
    woken: list[None] = []
    holder = holder_at(server, lambda: woken.append(None))
    holder.ack(holder.add(1, "q", "q", RAW))
    assert len(woken) == 1
    assert holder.acks_for_take() == []
    holder.send_acks_with_takes()
    holder.ack(holder.add(2, "q", "q", RAW))
    assert len(woken) == 1
    assert holder.acks_for_take() == ["1", "2"]


def test_acks_that_wait_for_a_take_are_sent_where_there_will_be_none(server: Redis) -> None:
    woken: list[None] = []
    holder = holder_at(server, lambda: woken.append(None))
    holder.send_acks_with_takes()
    holder.ack(holder.add(1, "q", "q", RAW))
    holder.send_acks()
    assert woken
    assert holder.acks_for_take() == []
    holder.settle()
    assert holder.tags == ()


def test_a_doubt_that_comes_while_it_compares_is_none_that_it_has_resolved(
    server: Redis, holder: MessageHolder
) -> None:
    assert holder.needs_comparison
    server.meanwhile = holder.require_comparison
    holder.compare()
    assert holder.needs_comparison
    server.meanwhile = lambda: None
    holder.compare()
    assert not holder.needs_comparison


def test_an_owner_that_redis_never_heard_of_ends_without_a_word(server: Redis, holder: MessageHolder) -> None:
    assert holder.leave()
    assert server.ran == []


def test_an_owner_that_holds_something_does_not_end(server: Redis, holder: MessageHolder) -> None:
    holder.compare()
    tag = holder.add(1, "q", "q", RAW)
    assert not holder.leave()
    assert server.count("leave") == 0
    holder.ack(tag)
    assert holder.leave()
    assert server.count("leave") == 1


STEP, STEP2 = HookStep(["fates:page:0"], []), HookStep(["fates:page:1"], [])
WRONG = "WRONGTYPE Operation against a key, script: abc, on @user_script:12."


def test_what_redis_refuses_is_said_once_with_what_it_is_about_and_why(
    server: Redis, holder: MessageHolder, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuses = WRONG
    for number in (1, 2):
        tag = holder.add(number, "q", "q", RAW)
        holder.bundle_with_ack(tag, STEP2 if number == 2 else STEP)
        holder.ack(tag)
        holder.settle(at_once=True)
    (line,) = [record.getMessage() for record in caplog.records]
    assert WRONG in line
    assert "fates:page:0" in line
    assert all(f"{holder.owner}.{number}" in holder.tags for number in (1, 2))
    server.refuses = ""
    holder.settle(at_once=True)
    assert holder.tags == ()


def test_what_redis_refuses_is_tried_ever_more_seldom(
    server: Redis, holder: MessageHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("lossless.transport.script_hook.monotonic", lambda: now)
    server.refuses = WRONG
    tag = holder.add(1, "q", "q", RAW)
    holder.bundle_with_ack(tag, STEP)
    holder.ack(tag)
    for _ in range(600):  # a minute of the keeper's turns
        now += 0.1
        holder.settle()
    assert 12 < server.count("ack") < 25
    server.refuses = ""
    now += RETRY_AFTER.most
    holder.settle()
    assert holder.tags == ()


def test_an_owner_does_not_end_while_a_step_of_what_is_its_no_more_is_refused(
    server: Redis, holder: MessageHolder
) -> None:
    server.refuses = WRONG
    holder.bundle_with_ack("taken by another", STEP)
    assert holder.tags == ()
    assert not holder.leave(at_once=True)
    server.refuses = ""
    assert holder.leave(at_once=True)


@given(st.lists(st.integers(1, 60), max_size=20))
def test_fields_are_given_out_once(sizes: list[int]) -> None:
    holder = holder_at(Redis())
    given_out = [range(first, first + size) for size in sizes for first in [holder.reserve(size)]]
    assert len({field for fields in given_out for field in fields}) == sum(sizes)
