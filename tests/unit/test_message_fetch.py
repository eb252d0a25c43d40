"""A taker that was rung looks, whenever it reads the bell."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from lossless.transport.event_loop_poller import BellConnection, PolledConnection
from lossless.transport.message_fetch import MessageFetcher
from lossless.transport.storage_layout import TransportKeys

RUNG = [b"message", b"_bell.me", b""]
NOTHING = [1, b"0", b"-1,", [], 0, -1]


class Connection:
    """A connection that notes what is sent, and has answers ready."""

    def __init__(self, **_: Any) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.answers: deque[Any] = deque()

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def send_command(self, *command: Any) -> None:
        self.sent.append(command)
        if command[0] == "SUBSCRIBE":
            self.answers.extend(command[1:])

    def read_response(self, **_: Any) -> Any:
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def can_read(self, timeout: float = 0) -> bool:
        return bool(self.answers)


class Taking:
    """A taker with an owner and one queue, and its lines as the poller sees them."""

    def __init__(self) -> None:
        self.lines: list[PolledConnection] = []
        keys = TransportKeys()
        holder = SimpleNamespace(
            keys=keys, owner="me", epoch="0", needs_comparison=False, backlog=0, reserve=lambda _: 1,
            acks_for_take=list, with_steps=lambda _: [0], acked=lambda *_: None, not_acked=lambda _: None,
            require_comparison=lambda: None,
        )  # fmt: skip
        poller = SimpleNamespace(
            waits_out_outages=True,
            outage_keeper=None,
            watch=lambda _, line: self.lines.append(line),
            unwatch=lambda _: None,
        )
        script = SimpleNamespace(text="take", sha="sha")
        channel: Any = SimpleNamespace(
            holder=holder, keys=keys, poller=poller, active_queues={"q"}, no_ack_queues=set(), take_limit=100,
            priority_steps=[0], queue_order_strategy="round_robin", socket_timeout=10.0,
            pool=SimpleNamespace(connection_class=Connection, connection_kwargs={}), queues_in_turn=lambda: ["q"],
            list_key=lambda queue, _: queue, qos=SimpleNamespace(credit=lambda limit, arrived: limit, at_work=False),
            hooked_scripts=SimpleNamespace(take=script, looks=False),
        )  # fmt: skip
        self.taker = MessageFetcher(channel)

    def line(self, kind: type[PolledConnection]) -> PolledConnection:
        (found,) = (line for line in self.lines if type(line) is kind)
        return found

    def takes(self) -> int:
        """How many takes were sent."""
        return len(self.line(PolledConnection).connection.sent)

    def hears(self, kind: type[PolledConnection], answer: Any) -> None:
        line = self.line(kind)
        line.connection.answers.append(answer)
        line.on_readable(line)


@pytest.fixture
def taking() -> Taking:
    taking = Taking()
    taking.taker.turn()
    assert taking.takes() == 1
    return taking


def test_a_taker_that_found_nothing_takes_again_when_it_is_rung(taking: Taking) -> None:
    taking.hears(PolledConnection, NOTHING)
    taking.taker.turn()
    assert taking.takes() == 1
    taking.hears(BellConnection, RUNG)
    taking.taker.turn()
    assert taking.takes() == 2


def test_a_bell_that_is_read_before_the_takes_answer_is_not_forgotten(taking: Taking) -> None:
    """It may have been rung after the take looked; nobody else is rung once it has."""
    taking.hears(BellConnection, RUNG)
    taking.hears(PolledConnection, NOTHING)
    taking.taker.turn()
    assert taking.takes() == 2
    taking.hears(PolledConnection, NOTHING)
    taking.taker.turn()
    assert taking.takes() == 2


def test_a_take_that_redis_did_not_know_is_sent_again(taking: Taking) -> None:
    taking.hears(PolledConnection, redis.exceptions.NoScriptError("NOSCRIPT"))
    taking.taker.turn()
    assert taking.takes() == 2
    assert taking.line(PolledConnection).connection.sent[-1][0] == "EVAL"


def test_acks_of_a_take_that_a_cut_connection_kept_from_being_sent_are_kept(taking: Taking, monkeypatch: Any) -> None:
    """Else their messages would be held, and their prefetch slots gone, for as long as the worker runs."""
    taking.hears(PolledConnection, NOTHING)
    taking.hears(BellConnection, RUNG)
    kept: list[str] = []
    holder: Any = taking.taker.holder
    monkeypatch.setattr(holder, "acks_for_take", lambda: ["7"])
    monkeypatch.setattr(holder, "not_acked", kept.extend)

    def cut(*_: Any) -> None:
        raise redis.ConnectionError("cut")

    monkeypatch.setattr(taking.taker._idling, "listen", cut)
    with pytest.raises(redis.ConnectionError):
        taking.taker.turn()
    assert kept == ["7"]
