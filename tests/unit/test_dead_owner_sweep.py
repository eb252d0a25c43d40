"""What goes back when an owner is dead, and what is said of what cannot."""

import logging
from typing import Any

import pytest

from lossless.lua import Script
from lossless.transport import message_recovery
from lossless.transport.inflight_messages import CHUNK
from lossless.transport.message_recovery import DEAD_AFTER, DeadOwnerSweep
from lossless.transport.storage_layout import TransportKeys, store_message

RAW = b'{"headers": {}, "properties": {"delivery_info": {}}}'


class Redis:
    """One with hashes, of which scripts put back as many as they are allowed to."""

    def __init__(self) -> None:
        self.hashes: dict[str, dict[bytes, bytes]] = {"_taken": {b"gone": b"7", b"own": b"1"}}
        self.calls: list[list[Any]] = []
        self.answers: list[int] = []

    def run(self, script: Script, keys: list[str], args: list[Any]) -> int:
        self.calls.append(args)
        return self.answers.pop(0) if self.answers else (len(args) - 2) // 3

    def fields(self, key: str) -> dict[bytes, bytes]:
        return self.hashes.get(key, {})


@pytest.fixture
def server() -> Redis:
    return Redis()


@pytest.fixture
def sweep(server: Redis, monkeypatch: pytest.MonkeyPatch) -> DeadOwnerSweep:
    """One that has just found out which owners are dead: those of others that stood still for long enough."""
    made = DeadOwnerSweep(TransportKeys(), server.run, server.fields, DEAD_AFTER)
    for now in range(0, int(DEAD_AFTER) + 1, 5):
        monkeypatch.setattr(message_recovery, "monotonic", lambda now=now: float(now))
        dead = made.dead({"own"})
    assert dead == ["gone"]
    assert made.owners == 2
    return made


def test_the_last_taken_goes_back_first_and_is_next_to_run_last(server: Redis, sweep: DeadOwnerSweep) -> None:
    server.hashes["_taken.gone"] = {b"@": b"1", b"9": store_message("q", b"nine"), b"10": store_message("p", b"ten")}
    sweep.put_back("gone")
    assert server.calls == [["gone", "7", b"10", b"p", b"ten", b"9", b"q", b"nine"]]


def test_what_it_held_is_marked_as_one_that_a_worker_died_with(server: Redis, sweep: DeadOwnerSweep) -> None:
    server.hashes["_taken.gone"] = {b"1": store_message("q", RAW)}
    sweep.put_back("gone")
    assert b'"restored": 1' in server.calls[0][-1]


def test_what_it_had_not_begun_with_is_counted_apart(server: Redis, sweep: DeadOwnerSweep) -> None:
    server.hashes["_taken.gone"] = {
        b"1": store_message("q", RAW),
        b"2": store_message("q", RAW),
        b"3": store_message("q", RAW),
    }
    server.hashes["_taken_begun"] = {b"gone": b"1,3", b"own": b"2"}
    sweep.put_back("gone")
    third, second, first = server.calls[0][4::3]
    assert b'"restored": 1' in first
    assert b'"restored": 1' in third
    assert b'"prefetched": 1' in second
    assert b"restored" not in second


def test_of_one_that_said_it_has_begun_with_nothing_all_is_prefetched(server: Redis, sweep: DeadOwnerSweep) -> None:
    server.hashes["_taken.gone"] = {b"1": store_message("q", RAW)}
    server.hashes["_taken_begun"] = {b"gone": b""}
    sweep.put_back("gone")
    assert b'"prefetched": 1' in server.calls[0][-1]


def test_what_is_none_of_ours_goes_aside_and_is_said(
    server: Redis, sweep: DeadOwnerSweep, caplog: pytest.LogCaptureFixture
) -> None:
    server.hashes["_taken.gone"] = {b"odd": b"no message"}
    with caplog.at_level(logging.ERROR):
        sweep.put_back("gone")
    assert server.calls == [["gone", "7", b"odd", "_undecodable", b"no message"]]
    assert "1 values that are none of ours are moved to the list '_undecodable'" in caplog.text


def test_one_that_held_nothing_is_ended_too(server: Redis, sweep: DeadOwnerSweep) -> None:
    sweep.put_back("gone")
    assert server.calls == [["gone", "7"]]


def test_many_messages_are_many_calls_and_none_after_it_shows_that_it_lives(
    server: Redis, sweep: DeadOwnerSweep
) -> None:
    server.hashes["_taken.gone"] = {b"%d" % number: store_message("q", RAW) for number in range(3 * CHUNK)}
    server.answers = [CHUNK, -1]
    sweep.put_back("gone")
    assert len(server.calls) == 2


def test_what_redis_refuses_is_counted(server: Redis, sweep: DeadOwnerSweep) -> None:
    server.hashes["_taken.gone"] = {b"1": store_message("q", RAW), b"2": store_message("taken up", RAW)}
    server.answers = [1]
    with pytest.raises(RuntimeError, match="Redis refused 1 of 2 messages"):
        sweep.put_back("gone")
