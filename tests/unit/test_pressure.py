"""When to pause, when to go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.pauses.pressure import Length, Limits, label, reason, too_long

limits = Limits(high=100, low=50)


@pytest.mark.parametrize(
    ("length", "before", "paused"),
    [
        (0, False, False),
        (100, False, False),
        (101, False, True),
        (101, True, True),
        (100, True, True),
        (50, True, True),
        (49, True, False),
        (50, False, False),
    ],
)
def test_between_the_marks_a_queue_stays_as_it_was(length, before, paused):
    assert too_long({"q": Length(length)}, limits, {"q"} if before else ()) == ({"q"} if paused else frozenset())


@given(st.lists(st.integers(0, 300), max_size=50))
def test_a_queue_that_stays_between_the_marks_never_flutters(lengths):
    paused: frozenset[str] = frozenset()
    for length in lengths:
        before, paused = paused, too_long({"q": Length(length)}, limits, paused)
        if limits.low <= length <= limits.high:
            assert paused == before
        else:
            assert bool(paused) == (length > limits.high)


def test_queues_are_judged_each_for_itself():
    assert too_long({"a": Length(101), "b": Length(5), "c": Length(60)}, limits, {"c"}) == {"a", "c"}


def test_a_queue_that_is_no_longer_asked_about_is_not_paused():
    assert too_long({"a": Length(1)}, limits, {"gone"}) == frozenset()


def test_the_reason_names_queue_length_and_marks():
    assert (
        reason("mail", Length(101), limits) == "queue 'mail' holds 101 messages (paused above 100, on again below 50)"
    )


def test_what_waits_for_its_retry_counts_and_is_named_as_the_reason():
    assert too_long({"a": Length(10, 91), "b": Length(10, 90)}, limits, ()) == {"a"}
    assert "101 messages, 91 of them waiting for their retry" in reason("a", Length(10, 91), limits)
    assert (label("a", Length(10, 91)), label("a", Length(91, 10))) == ("retries of queue a", "queue a")
