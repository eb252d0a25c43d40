"""What is promised of the attempts that a delivery carries on: they are bounded, travel unchanged, and hurt nobody."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import attempt_history as history_of
from bridge.formats import dead_letter_record, retry_record
from bridge.formats.attempt_history import (
    LOST,
    MAX_ERROR,
    MAX_TEXT,
    MOST_ATTEMPTS,
    AttemptNote,
    add_attempt,
    pack_history,
    read_history,
    unpack_history,
    write_history,
)
from bridge.formats.celery_header import HEADER, from_header, to_header
from bridge.formats.delivery import Batch, Dead, Delivery, Message
from bridge.formats.failure import Failure
from tasks.execution.process_loss import TaskNotes, headers_after_loss

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NOTES = st.builds(
    AttemptNote,
    st.integers(1, 99),
    st.integers(0, 2**41),
    st.none() | st.integers(0, 10**7),
    TEXTS,
    TEXTS,
    TEXTS,
    st.sampled_from(["failed", "postponed", "lost"]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda some: st.lists(some, max_size=8) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=30,
)


def alike(count: int) -> history_of.History:
    """Attempts of which each failed like the one before."""
    found: history_of.History = ()
    for run in range(1, count + 1):
        note = AttemptNote(run, 1_764_000_000_000 + run, 12, "mail.Down: it takes no mail", "celery@a", "1.5.0")
        found = add_attempt(found, note)
    return found


@given(st.lists(NOTES, max_size=MOST_ATTEMPTS))
def test_a_history_travels_unchanged_in_a_celery_header_and_in_a_kafka_header(notes):
    history = tuple(notes)
    assert unpack_history(json.loads(json.dumps(pack_history(history)))) == history
    written = write_history(history)
    assert written.isascii()
    if len(written) < MAX_TEXT and len(history) == len(read_history(written)):
        assert read_history(written) == history


@given(JSON)
def test_what_another_program_wrote_there_is_read_as_what_it_is_or_left_out(data):
    for note in (*unpack_history(data), *read_history(json.dumps(data))):
        assert note.end in ("failed", "postponed", "lost")
        assert note.run >= 0
        assert len(note.error) <= MAX_ERROR


@pytest.mark.parametrize("text", ["", "no", "[[1,2]]", "[[1,2,3,4]]", "[[1,-2,3]]", "[" * 9_000, "[[1,1e99,3]]"])
def test_a_header_that_is_none_of_ours_is_no_history(text):
    assert read_history(text) == ()


def test_of_many_attempts_the_first_and_the_last_are_kept():
    kept = alike(40)
    assert len(kept) == MOST_ATTEMPTS
    assert [note.run for note in kept] == [1, *range(26, 41)]


def test_attempts_that_failed_alike_take_little_and_no_history_is_longer_than_its_bound():
    assert len(write_history(alike(13))) < 500
    long: history_of.History = ()
    for run in range(1, 30):
        long = add_attempt(long, AttemptNote(run, run, run, f"{run}" + "\u20ac" * 900, "w" * 900 + str(run), "v" * 99))
    text = write_history(long)
    assert 1_000 < len(text) <= MAX_TEXT
    first, *_, last = read_history(text)
    assert (first.run, last.run) == (1, 29)


DEAD = Dead("permanent", Failure("E", "m", "", 1))


def failed(times: int) -> Delivery:
    delivery = Delivery(Message("orders", 0, 7, b"k", b"v", timestamp=5), "charge")
    for at in range(1, times + 1):
        failure = Failure("mail.Down", f"at {at}", "", at * 1_000)
        delivery = delivery.failed(failure, spent=at % 2 == 1, seconds=at / 10, worker="celery@a", version="7.1")
    return delivery


def test_each_failed_run_is_noted_with_when_how_long_where_and_why():
    assert failed(2).history == (
        AttemptNote(1, 1_000, 100, "mail.Down: at 1", "celery@a", "7.1", "failed"),
        AttemptNote(2, 2_000, 200, "mail.Down: at 2", "celery@a", "7.1", "postponed"),
    )


def test_the_history_goes_along_through_the_queue_a_retry_topic_and_the_dead_letter():
    delivery = failed(3)
    batch = Batch("charge", "orders", 0, (delivery,), "c", "g", "log")
    header = json.loads(json.dumps(to_header(batch)))
    assert from_header("charge", header).deliveries[0].history == delivery.history
    parked: Any = Record(retry_record.retry_headers(delivery.parked(), "g", due=9_000))
    found = retry_record.read_retry_record(parked, "c", "t")
    assert found is not None
    assert found.delivery.history == delivery.history
    dead: Any = Record(
        dead_letter_record.dead_letter_headers(delivery, Dead("permanent", Failure("E", "m", "", 1)), "g")
    )
    letter = dead_letter_record.read_dead_letter(dead)
    assert letter is not None
    assert letter.history == delivery.history
    assert letter.theirs == ()


def test_a_delivery_that_never_failed_carries_nothing_of_it():
    delivery = failed(0)
    assert "history" not in json.dumps(to_header(Batch("charge", "orders", 0, (delivery,), "c", "g", "log")))
    names = [name for name, _ in retry_record.retry_headers(delivery.parked(), "g")]
    names += [
        name for name, _ in dead_letter_record.dead_letter_headers(delivery, Dead("x", Failure("", "", "", 1)), "g")
    ]
    assert "attempt_history" not in names


def test_a_process_that_died_is_an_attempt_without_a_duration():
    batch = Batch("charge", "orders", 0, (failed(1),), "c", "g", "log")
    changed = headers_after_loss("charge", {HEADER: to_header(batch)}, TaskNotes(running=7), "signal 9", 8.0)
    (delivery,) = from_header("charge", changed[HEADER]).deliveries
    assert delivery.history[1:] == (AttemptNote(2, 8_000, None, "signal 9", end=LOST),)


class Record:
    """A record with these headers."""

    def __init__(self, headers: Any) -> None:
        self._headers = [(name, value) for name, value in headers]

    def headers(self) -> Any:
        return self._headers

    def topic(self) -> str:
        return "orders.dlq"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 1

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"
