"""How long what a worker cannot run waits for one that can."""

from hypothesis import given
from hypothesis import strategies as st

from lossless.worker.message_burial import UNKNOWN_SINCE
from lossless.worker.unknown_tasks import (
    LONGEST,
    MOST_MESSAGES,
    MOST_NAMES,
    SAY_EVERY,
    SHORTEST,
    UnknownMessages,
    find_unknown_pause,
    read_unknown_since,
)

SECONDS = st.floats(0, 1e6)


@given(SECONDS, SECONDS)
def test_a_pause_grows_with_the_time_waited_and_ends_with_the_time_that_is_left(waited: float, left: float):
    pause = find_unknown_pause(waited, left)
    assert 0 < pause <= LONGEST
    assert pause <= max(left, 0.1)
    assert find_unknown_pause(waited) >= min(waited / 2, LONGEST)
    assert find_unknown_pause(waited) >= SHORTEST


def test_since_when_a_task_is_unknown_travels_with_its_message():
    assert read_unknown_since({}, 50) == 50
    assert read_unknown_since({UNKNOWN_SINCE: 40_000}, 50) == 40
    # Headers can be hostile: the future, a text, nothing.
    assert [read_unknown_since({UNKNOWN_SINCE: said}, 50) for said in (9e9, "x", None, -1, [1])] == [50] * 5


def test_one_line_a_minute_is_written_about_messages_of_one_name_with_their_number():
    seen = UnknownMessages()
    assert [seen.to_say("a", now) for now in (0, 1, 2)] == [1, 0, 0]
    assert seen.to_say("b", 2) == 1
    assert seen.to_say("a", SAY_EVERY) == 3
    assert seen.to_say("a", SAY_EVERY + 1) == 0


def test_pauses_grow_by_message_and_a_new_one_is_looked_at_soon_again():
    seen = UnknownMessages()
    assert [seen.pause("a", "first", now) for now in (0, 1, 10, 50, 100)] == [SHORTEST, SHORTEST, 5, 25, LONGEST]
    assert seen.pause("a", "second", 100) == SHORTEST


def test_not_every_name_and_message_is_remembered_and_what_is_not_waits_as_long_as_its_name():
    seen = UnknownMessages()
    for number in range(MOST_MESSAGES):
        seen.pause(number, number, 0)
    assert len(seen._names) <= MOST_NAMES + 1
    assert seen.pause(0, "one too many", 20) == 10
    assert len(seen._messages) == MOST_MESSAGES
    seen.pause("a", "much later", 1000)
    assert len(seen._messages) == 1
