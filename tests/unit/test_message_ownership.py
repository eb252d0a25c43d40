"""What a worker tells Redis of that which it has begun with."""

from types import SimpleNamespace

from lossless.transport.message_ownership import TELL_EVERY, BegunTasks


def begun() -> tuple[BegunTasks, SimpleNamespace]:
    clock = SimpleNamespace(now=100.0)
    return BegunTasks(lambda: clock.now), clock


def test_the_first_after_a_quiet_moment_is_told_at_once_and_what_follows_together() -> None:
    told, clock = begun()
    assert told.add("1")
    assert told.to_tell(["1", "2"]) == "1"
    assert not told.add("2")
    assert told.to_tell(["1", "2", "10"]) is None
    told.add("10")
    clock.now += 2 * TELL_EVERY
    assert told.to_tell(["1", "2", "10"]) == "1,2,10"


def test_what_is_held_no_more_is_forgotten_and_needs_no_telling() -> None:
    told, clock = begun()
    told.add("1")
    assert told.to_tell(["1"]) == "1"
    clock.now += 10
    assert told.to_tell([]) is None
    told.add("2")
    assert told.to_tell(["2"]) == "2"


def test_what_redis_did_not_hear_is_told_again() -> None:
    told, clock = begun()
    told.add("1")
    assert told.to_tell(["1"]) == "1"
    told.untold()
    clock.now += 2 * TELL_EVERY
    assert told.to_tell(["1"]) == "1"
