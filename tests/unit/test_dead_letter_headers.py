"""A dead letter's headers: what is written is read back, and another producer's record is none of ours."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import dead_letter_record
from bridge.formats.dead_letter_record import DeadLetterKey, DeadLetterSummary
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.failure import Failure

FAILURE = Failure("E", "m", "", 1_000)


class Record:
    """A record of the dead-letter topic."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def topic(self) -> str:
        return "orders.dlq"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def key(self) -> bytes | None:
        return None


def read(headers: Any) -> DeadLetterSummary | None:
    record: Any = Record(headers)
    return dead_letter_record.read_dead_letter_summary(record)


def delivery(log: str, timestamp: int | None = 5) -> Delivery:
    return Delivery(Message("orders", 0, 7, timestamp=timestamp, origin=f"c g {log}"), "work")


def whose(written: Delivery, *, older: bool = False) -> DeadLetterKey:
    """Whose it is as it is read back; `older`: as a version wrote it that did not name the log."""
    headers = dead_letter_record.dead_letter_headers(written, Dead("permanent", FAILURE), "g")
    found = read([header for header in headers if not (older and header[0] == "origin_topic_id")])
    assert found is not None
    return found.whose


@pytest.mark.parametrize("older", [False, True], ids=["which names its log", "of an older version"])
@pytest.mark.parametrize("timestamp", [5, None])
def test_a_delivery_knows_its_own_dead_letter(older: bool, timestamp: int | None):
    assert whose(delivery("now", timestamp), older=older) in DeadLetterKey.those_of(delivery("now", timestamp))


def test_a_dead_letter_of_an_earlier_log_is_not_a_deliverys_own():
    assert whose(delivery("earlier")) not in DeadLetterKey.those_of(delivery("now"))
    assert whose(delivery("earlier", 4), older=True) not in DeadLetterKey.those_of(delivery("now"))


def test_what_was_sent_back_and_dies_again_has_a_letter_of_its_own():
    replayed = replace(delivery("now"), attempts=Attempts(replayed=1))
    asked = replace(replayed, again="plan-7")
    written = [whose(delivery("now")), whose(replayed), whose(asked)]
    assert [
        [each in DeadLetterKey.those_of(its) for each in written] for its in (delivery("now"), replayed, asked)
    ] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    # However often it was parked meanwhile, and with a retry the more.
    assert written[1] in DeadLetterKey.those_of(replace(replayed, number=9, attempts=Attempts(failed=3, replayed=1)))


def test_a_dead_letter_that_names_no_log_may_be_of_the_log_there_is():
    assert whose(delivery("now")).is_of("now")
    assert whose(delivery("earlier"), older=True).is_of("now")
    assert not whose(delivery("earlier")).is_of("now")


names = st.text("abcxyz._-", min_size=1, max_size=20)


@given(
    topic=names,
    partition=st.integers(0, 10_000),
    offset=st.integers(0, 2**62),
    handler=names,
    group=names,
    runs=st.integers(0, 10_000),
    attempts=st.builds(Attempts, *[st.integers(0, 10_000)] * 4),
    failed_at=st.integers(0, 2**42),
    headers=st.lists(st.tuples(st.sampled_from(["handler", "reason", "attempts", "own"]), st.binary(max_size=5))),
)
def test_what_was_written_is_read_back_whatever_headers_the_producer_gave(
    topic, partition, offset, handler, group, runs, attempts, failed_at, headers
):
    message = Message(topic, partition, offset, headers=tuple(headers), origin="c g log")
    dead = Dead("exhausted", Failure("shop.Declined", "no", "Traceback", failed_at))
    found = read(
        dead_letter_record.dead_letter_headers(Delivery(message, handler, runs=runs, attempts=attempts), dead, group)
    )
    assert found == DeadLetterSummary(
        place="orders.dlq-3-17",
        topic=topic,
        whose=DeadLetterKey(partition, offset, handler, "log", replayed=attempts.replayed),
        group=group,
        runs=runs,
        attempts=attempts,
        reason="exhausted",
        error="shop.Declined: no",
        failed_at=failed_at / 1000,
    )


def test_a_record_without_a_timestamp_has_none_in_its_dead_letter():
    headers = dead_letter_record.dead_letter_headers(delivery("l", None), Dead("permanent", FAILURE), "g")
    assert dict(headers)["origin_timestamp"] == b""


def test_what_no_ascii_can_say_is_escaped_and_nothing_is_refused():
    headers = dead_letter_record.dead_letter_headers(
        delivery("l"), Dead("permanent", Failure("E", "größe \ud800", "", 1)), "g"
    )
    assert dict(headers)["error_message"] == rb"gr\xf6\xdfe \ud800"


OURS = dict(dead_letter_record.dead_letter_headers(delivery("now"), Dead("permanent", FAILURE), "g"))


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        SystemError("a name that is no UTF-8"),
        [("origin_topic", b"orders")],
        [*OURS.items(), ("origin_offset", b"seven")],
        [*OURS.items(), ("origin_partition", None)],
    ],
)
def test_another_producers_record_is_no_dead_letter_of_ours(headers: Any):
    assert read(headers) is None


@pytest.mark.parametrize(("name", "value"), [("attempts", b"many"), ("failed_at", b""), ("failed_at", "²".encode())])
def test_a_count_or_a_time_that_is_none_counts_nothing(name: str, value: bytes):
    found = read([*OURS.items(), (name, value)])
    assert found is not None
    assert getattr(found, {"attempts": "runs"}.get(name, name)) == 0


def test_a_letter_of_an_older_version_does_not_say_what_its_runs_were():
    found = read([header for header in OURS.items() if not header[0].startswith("attempts_")])
    assert found is not None
    assert found.attempts is None


def test_a_record_too_large_says_less_and_less_of_its_failure():
    whole, short, bare = dead_letter_record.shorten_failure(Failure("E", "x" * 2_000, "T" * 16_000, 1))
    assert (len(whole.error_message), len(short.error_message), bare.error_message) == (2_000, 200, "")
    assert (short.error_traceback, bare.error_traceback) == ("", "")
    assert {each.error_class for each in (whole, short, bare)} == {"E"}
