"""Commands as Redis reads them, and how few steps one takes that is like the one before."""

import sys
from typing import Any

from redis.connection import PythonRespSerializer

from lossless.transport.event_loop_poller import MOST_KEPT, CommandPacker

TAKE = (
    "EVALSHA",
    "1f" * 20,
    7,
    "_taken.owner",
    "_idle",
    *(f"list{number}" for number in range(40)),
    b"\xff\0",
    "",
    "ä",
)


def _encode(argument: object) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def test_a_command_is_packed_as_redis_py_packs_it() -> None:
    packer, plain = CommandPacker(), PythonRespSerializer(6_000, _encode)
    for command in (TAKE, TAKE, ("PING",), ("SET", "key", b"x" * 1_000, 3, 2.5)):
        expected = plain.pack(*command)
        assert b"".join(packer.pack(*command)) == b"".join(expected)


def test_a_command_like_the_one_before_takes_few_calls() -> None:
    packer, calls = CommandPacker(), 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    packer.pack(*TAKE)
    sys.setprofile(count)
    try:
        packer.pack(*TAKE[:-1], "another")
    finally:
        sys.setprofile(None)
    assert calls < 12


def test_only_so_many_arguments_are_kept() -> None:
    packer = CommandPacker()
    for number in range(3 * MOST_KEPT):
        packer.pack("HDEL", number, b"x" * 10_000)
    assert len(packer._arguments) <= MOST_KEPT
