"""When to pause, when to go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.backpressure.queue_pressure import (
    LimitWatch,
    PauseLimits,
    QueueLength,
    estimate_work_seconds,
    explain_long_queue,
    find_long_queues,
    find_over_limit,
    label_long_queue,
)
from bridge.backpressure.topic_pressure import TopicPressure
from bridge.formats.pause_reasons import PauseReason, name_pause_reason, parse_pause_reason
from bridge.settings import FileSettings

limits = PauseLimits(high=100, low=50)


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
    assert find_long_queues({"q": QueueLength(length)}, limits, {"q"} if before else ()) == (
        {"q"} if paused else frozenset()
    )


@given(st.lists(st.integers(0, 300), max_size=50))
def test_a_queue_that_stays_between_the_marks_never_flutters(lengths):
    paused: frozenset[str] = frozenset()
    for length in lengths:
        before, paused = paused, find_long_queues({"q": QueueLength(length)}, limits, paused)
        if limits.low <= length <= limits.high:
            assert paused == before
        else:
            assert bool(paused) == (length > limits.high)


def test_queues_are_judged_each_for_itself():
    assert find_long_queues({"a": QueueLength(101), "b": QueueLength(5), "c": QueueLength(60)}, limits, {"c"}) == {
        "a",
        "c",
    }


def test_a_queue_that_is_no_longer_asked_about_is_not_paused():
    assert find_long_queues({"a": QueueLength(1)}, limits, {"gone"}) == frozenset()


def test_the_reason_names_queue_length_and_marks():
    assert (
        explain_long_queue("mail", QueueLength(101), limits)
        == "queue 'mail' holds 101 messages (paused above 100, resumed below 50)"
    )


def test_what_waits_for_its_retry_counts_and_is_named_as_the_reason():
    assert find_long_queues({"a": QueueLength(10, 91), "b": QueueLength(10, 90)}, limits, ()) == {"a"}
    assert "101 messages, 91 of them waiting for their retry" in explain_long_queue("a", QueueLength(10, 91), limits)
    assert (label_long_queue("a", QueueLength(10, 91)), label_long_queue("a", QueueLength(91, 10))) == (
        "retries of queue a",
        "queue a",
    )


amounts = st.one_of(st.none(), st.floats(0, 300))


@given(st.lists(amounts, max_size=50))
def test_what_stays_between_the_marks_or_is_not_known_never_flutters(found):
    paused: frozenset[str] = frozenset()
    for much in found:
        before, paused = paused, find_over_limit({"q": much}, limits, paused)
        if much is None or limits.low <= much <= limits.high:
            assert paused == before
        else:
            assert bool(paused) == (much > limits.high)


@given(st.floats(0, 300), st.floats(0, 300), st.booleans())
def test_what_pauses_for_some_pauses_for_more(some, more, before):
    less, much = sorted([some, more])
    was = {"q"} if before else set()
    assert find_over_limit({"q": less}, limits, was) <= find_over_limit({"q": much}, limits, was)


def test_what_is_not_named_stays_as_it_was():
    assert find_over_limit({}, limits, {"q"}) == {"q"}


@pytest.mark.parametrize(
    ("carried", "costs", "processes", "seconds"),
    [
        ({"a": 100}, {"a": 2.0}, 4, 50.0),
        ({"a": 100, "b": 10}, {"a": 2.0, "b": 20.0}, 4, 100.0),
        ({"a": 100}, {"a": 2.0}, 0, None),
        ({"a": 100, "b": 1}, {"a": 2.0, "b": None}, 4, None),
        ({"a": 100, "b": 1}, {"a": 2.0}, 4, None),
        ({}, {}, 4, None),
    ],
    ids=["one handler", "two", "nobody consumes it", "one never ran", "one is not known", "not weighed"],
)
def test_work_is_deliveries_by_their_cost_and_the_processes(carried, costs, processes, seconds):
    assert estimate_work_seconds(carried, costs, processes, 100) == seconds
    assert estimate_work_seconds(carried, costs, processes, 0) == 0.0, "an empty queue goes on, whatever is known"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1e4), st.integers(1, 1000))
def test_more_deliveries_are_no_less_work_and_more_processes_no_more(one, other, cost, processes):
    def work(count: int, by: int) -> float:
        seconds = estimate_work_seconds({"a": count}, {"a": cost}, by, 1)
        assert seconds is not None
        return seconds

    few, many = sorted([one, other])
    assert work(few, processes + 1) <= work(few, processes) <= work(many, processes)


def test_each_pressure_is_told_once_when_it_begins_and_once_when_it_ends(caplog):
    caplog.set_level("INFO")
    watch = LimitWatch(1000, PauseReason.QUEUE_BYTES, "queue {name!r} takes {much:,.0f} bytes of Redis")
    for much in (500, 1500, 1600, None, 700, 1500, 499):
        watch.update_counts({"q": much})
        assert watch.paused == ({} if much in (500, 499) else {"q": "bytes of queue q"})
    assert caplog.messages == [
        "paused: queue 'q' takes 1,500 bytes of Redis (paused above 1,000, resumed below 500)",
        "resumed: queue 'q' takes 499 bytes of Redis",
    ]


def test_without_a_limit_nothing_ever_pauses():
    watch = LimitWatch(None, PauseReason.QUEUE_BYTES, "{name} {much}")
    watch.update_counts({"q": 1e12})
    assert not watch.paused
    assert not watch.wanted


def test_too_much_elsewhere_pauses_the_topic_and_never_its_retry_topics():
    sources = TopicPressure(
        ["orders", "mail"], FileSettings(kafka_pause_dead_letters_a_minute=10, kafka_pause_above_parked=100), None
    )
    places = [("orders", 0), ("orders", 1), ("orders.retry.5m", 0), ("mail", 0), ("mail.retry.5m", 0)]
    sources.update_counts({"orders": 11}, {"mail": 101})
    expected = {place: f"dead letters of {place[0]}" for place in places[:2]}
    assert sources.pauses(places) == expected | {("mail", 0): "parked records of mail"}
    # What a rebalance brings is paused too, and silence changes nothing.
    sources.update_counts({}, {"mail": 60})
    assert sources.pauses([("orders", 7), ("mail", 3)]) == {
        ("orders", 7): "dead letters of orders",
        ("mail", 3): "parked records of mail",
    }
    sources.update_counts({"orders": 4}, {})
    assert not sources.pauses(places)


@pytest.mark.parametrize("reason", PauseReason)
def test_the_words_of_a_reason_and_its_queue_are_read_back(reason: PauseReason):
    words, name = (name_pause_reason(reason, "a b"), "a b") if reason.names else (reason.value, "")
    assert parse_pause_reason(words) == (reason, name)


def test_a_reason_of_another_version_has_no_member():
    assert parse_pause_reason("the moon is full") == (None, "the moon is full")
