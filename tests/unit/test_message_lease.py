"""When a process asks whether its message is its worker's still."""

from types import SimpleNamespace

import pytest

from tasks.errors import GivenAway
from tasks.execution.message_lease import MessageLease


def grip(answers: list[bool], tag: str | None = "owner:30.7") -> tuple[MessageLease, SimpleNamespace, list[str]]:
    clock, asked = SimpleNamespace(now=100.0), list[str]()

    def is_given_away(held: str) -> bool:
        asked.append(held)
        return answers.pop(0)

    return MessageLease(tag, 100.0, 10.0, is_given_away, lambda: clock.now), clock, asked


def test_what_was_taken_a_moment_ago_is_not_asked_about() -> None:
    held, clock, asked = grip([])
    clock.now += 9.9
    held.check()
    assert asked == []


def test_an_answer_holds_for_a_while() -> None:
    held, clock, asked = grip([False, True])
    clock.now += 10
    held.check()
    clock.now += 9
    held.check()
    assert asked == ["owner:30.7"]
    clock.now += 1
    with pytest.raises(GivenAway, match="silent for so long"):
        held.check()


def test_what_another_transport_delivered_is_kept() -> None:
    held, clock, asked = grip([], None)
    clock.now += 1000
    held.check()
    assert asked == []
