"""Dead letters that others wrote: recognised, read as far as they say something, and kept whole where they do not.

tests/unit/data/foreign_letters.json has the headers that a real Spring Kafka 4.1.1 and Kafka Connect 4.2.1 wrote
(tests/foreign), each byte as the character of its number.
"""

import json
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import foreign_dead_letter
from bridge.formats.delivery import Header
from bridge.formats.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK
from bridge.formats.foreign_dead_letter import FOREIGN_FORMATS, ForeignDeadLetter

REAL: Final[dict[str, tuple[Header, ...]]] = {
    kind: tuple((name, None if value is None else value.encode("latin-1")) for name, value in headers)
    for kind, headers in json.loads((Path(__file__).parent / "data" / "foreign_letters.json").read_text()).items()
}
#: What the producer of the real records had put on them.
PRODUCERS: Final = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("reason", b"a rebate"))
DESERIALIZATION: Final = "org.springframework.kafka.support.serializer.DeserializationException"
NAMES: Final = sorted({name for known in FOREIGN_FORMATS for name in known.says})
HEADERS: Final = st.lists(
    st.tuples(
        st.sampled_from(NAMES) | st.text(),
        st.none()
        | st.binary()
        | st.integers(-(2**63), 2**63 - 1).map(lambda number: struct.pack(">q", number))
        | st.integers().map(lambda number: str(number).encode()),
    )
)


def said(headers: Any, *fields: str) -> tuple[Any, ...]:
    found = foreign_dead_letter.read_foreign_dead_letter(headers)
    return tuple(getattr(found, field) for field in fields)


@pytest.mark.parametrize(
    ("kind", "source", "error_class", "error_message", "attempts"),
    [
        ("plain", ("p.plain", 1, 0), "SpringLetters$CardDeclined", "threw exception; declined: visa", 0),
        ("counted", ("p.counted", 1, 0), "SpringLetters$CardDeclined", "threw exception; declined: visa", 3),
        ("retried", ("p.retried", 1, 0), "SpringLetters$CardDeclined", "Listener failed; declined: visa", 3),
        ("key", ("p.typed", 1, 0), DESERIALIZATION, "failed to deserialize", 0),
        ("value", ("p.typed", 1, 1), DESERIALIZATION, "failed to deserialize", 0),
        ("both", ("p.typed", 1, 2), DESERIALIZATION, "failed to deserialize", 0),
    ],
)
def test_a_letter_of_spring_says_what_spring_put_into_it(
    kind: str, source: tuple[str, int, int], error_class: str, error_message: str, attempts: int
):
    found = foreign_dead_letter.read_foreign_dead_letter(REAL[f"spring {kind}"])
    assert (found.origin, found.topic, found.partition, found.offset) == (foreign_dead_letter.SPRING, *source)
    assert (found.group, found.reason, found.error_class, found.attempts) == ("billing", "", error_class, attempts)
    assert found.error_message.endswith(error_message)
    assert found.error_traceback.startswith("org.springframework.kafka.")
    assert found.error_traceback.count("\n\tat ") > 20
    assert found.timestamp is not None
    assert 1_700_000_000_000 < found.timestamp < 2_000_000_000_000
    assert found.failed_at is None


@pytest.mark.parametrize(
    ("kind", "offset", "error_class", "error_message"),
    [
        (
            "value converter",
            0,
            "org.apache.kafka.connect.errors.DataException",
            "Converting byte[] to Kafka Connect data failed due to serialization error: ",
        ),
        ("task put", 1, "java.lang.IllegalArgumentException", "the table has no column for {amount=3}"),
    ],
)
def test_a_letter_of_connect_says_the_connector_and_its_stage(
    kind: str, offset: int, error_class: str, error_message: str
):
    found = foreign_dead_letter.read_foreign_dead_letter(REAL[f"connect {kind}"])
    assert (found.origin, found.topic, found.partition, found.offset) == (
        foreign_dead_letter.CONNECT,
        "p.sink",
        1,
        offset,
    )
    assert (found.group, found.reason) == ("warehouse", kind.upper().replace(" ", "_"))
    assert (found.error_class, found.error_message) == (error_class, error_message)
    assert found.error_traceback.startswith(error_class)
    assert (found.timestamp, found.attempts, found.failed_at) == (None, 0, None)


@pytest.mark.parametrize("kind", REAL)
def test_the_producers_own_headers_are_left_byte_for_byte(kind: str):
    assert foreign_dead_letter.read_foreign_dead_letter(REAL[kind]).theirs == PRODUCERS


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {
                "__rule.name": b"checkSsn",
                "__rule.mode": b"READ",
                "__rule.subject": b"orders-value",
                "__rule.topic": b"orders",
                "__rule.exception": b"Expr failed: 'size(message.ssn) == 9'",
            },
            ForeignDeadLetter(
                "confluent",
                topic="orders",
                reason="READ checkSsn",
                error_message="Expr failed: 'size(message.ssn) == 9'",
                theirs=PRODUCERS,
            ),
        ),
        (
            {
                "__dlq.errors.topic": b"orders",
                "__dlq.errors.partition": b"3",
                "__dlq.errors.offset": b"1234",
                "__dlq.errors.group": b"charging",
                "__dlq.errors.delivery.count": b"5",
                "__dlq.errors.message": b"Offset delivery count exceeded the threshold.",
            },
            ForeignDeadLetter(
                "share-group",
                topic="orders",
                partition=3,
                offset=1234,
                group="charging",
                reason="Offset delivery count exceeded the threshold.",
                attempts=5,
                theirs=PRODUCERS,
            ),
        ),
        (
            {
                "dead-letter-exception-class-name": b"java.lang.RuntimeException",
                "dead-letter-reason": b"Something went wrong",
                "dead-letter-cause-class-name": b"java.io.IOException",
                "dead-letter-cause": b"closed",
                "dead-letter-topic": b"movies",
                "dead-letter-partition": b"0",
                "dead-letter-offset": b"7",
            },
            ForeignDeadLetter(
                "smallrye",
                topic="movies",
                partition=0,
                offset=7,
                error_class="java.lang.RuntimeException",
                error_message="Something went wrong",
                theirs=PRODUCERS,
            ),
        ),
        (
            {
                "source_topic": b"orders",
                "source_partition": b"3",
                "source_offset": b"1234",
                "source_consumer_group": b"app",
                "source_attempts": b"4",
                "source_trace_id": b"0c1a",
            },
            ForeignDeadLetter(
                "karafka", topic="orders", partition=3, offset=1234, group="app", attempts=4, theirs=PRODUCERS
            ),
        ),
        ({}, ForeignDeadLetter("unknown", theirs=PRODUCERS)),
        # One of these a producer may well have; and a mark that a Spring consumer leaves is no dead letter.
        ({"source_topic": b"x"}, ForeignDeadLetter("unknown", theirs=(*PRODUCERS, ("source_topic", b"x")))),
        (
            {"kafka_deliveryAttempt": b"\0\0\0\3"},
            ForeignDeadLetter("unknown", theirs=(*PRODUCERS, ("kafka_deliveryAttempt", b"\0\0\0\3"))),
        ),
    ],
    ids=["confluent", "share-group", "smallrye", "karafka", "none", "a producer's own", "a mark"],
)
def test_what_others_write_is_recognised_by_their_headers(headers: dict[str, bytes], expected: ForeignDeadLetter):
    assert foreign_dead_letter.read_foreign_dead_letter([*PRODUCERS, *headers.items()]) == expected


def test_a_letter_of_spring_without_a_cause_names_the_exception_itself():
    headers = [header for header in REAL["spring plain"] if header[0] != "kafka_dlt-exception-cause-fqcn"]
    wrapper = "org.springframework.kafka.listener.ListenerExecutionFailedException"
    assert said(headers, "error_class") == (wrapper,)


@pytest.mark.parametrize("name", ["springDeserializerExceptionKey", "springDeserializerExceptionValue"])
def test_what_springs_consumer_leaves_on_a_record_is_not_sent_back_to_its_source(name: str):
    assert said([*REAL["spring both"], (name, b"\xac\xed")], "theirs") == (PRODUCERS,)


def test_of_a_letter_that_died_again_the_last_death_counts():
    again = [
        *REAL["connect value converter"],
        ("__connect.errors.offset", b"99"),
        ("__connect.errors.stage", b"TASK_PUT"),
    ]
    assert said(again, "topic", "offset", "reason", "theirs") == ("p.sink", 99, "TASK_PUT", PRODUCERS)


def test_of_what_smallrye_puts_before_the_records_headers_the_first_counts():
    one = [("dead-letter-topic", b"new"), ("dead-letter-exception-class-name", b"New"), ("dead-letter-offset", b"9")]
    before = [("dead-letter-topic", b"old"), ("dead-letter-exception-class-name", b"Old"), ("dead-letter-offset", b"1")]
    assert said([*one, ("a", b"b"), *before], "topic", "offset", "error_class", "theirs") == (
        "new",
        9,
        "New",
        (("a", b"b"),),
    )


def test_what_went_through_two_frameworks_is_the_lasts_and_keeps_the_headers_of_the_first():
    spring = REAL["spring plain"]
    through = [*spring, ("__connect.errors.topic", b"p.plain-dlt"), ("__connect.errors.stage", b"TASK_PUT")]
    assert said(through, "origin", "topic", "theirs") == (foreign_dead_letter.CONNECT, "p.plain-dlt", spring)


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\0\0\0", b"\0" * 9, b"1234567", b"\xff" * 8, b"\xff" * 4])
@pytest.mark.parametrize("name", ["partition", "offset", "timestamp"])
def test_a_number_of_springs_that_is_none_was_not_said_whatever_was_said_before(name: str, value: bytes | None):
    headers = [*REAL["spring plain"], (f"kafka_dlt-original-{name}", value)]
    assert said(headers, name) == (None,)


@pytest.mark.parametrize(
    "value", [None, b"", b"-1", b"+1", b"1.0", b" 1", b"1_0", "\u0663".encode(), b"9" * 19, b"9" * 5_000, b"1\n"]
)
def test_a_number_of_connects_that_is_none_was_not_said(value: bytes | None):
    assert said([*REAL["connect task put"], ("__connect.errors.offset", value)], "offset") == (None,)


@pytest.mark.parametrize("name", [b"", b"a b", b"x" * 250, "\u00f6rders".encode(), b"orders\n", b"or\0ders", None])
def test_what_can_be_no_topic_is_no_source_to_replay_to(name: bytes | None):
    assert said([*REAL["connect task put"], ("__connect.errors.topic", name)], "topic") == ("",)


def test_text_is_cut_to_the_lengths_of_our_own_letters_and_has_no_null_character():
    huge = b"a\0\xff" * 100_000
    headers = [(name, huge) for name in ("class.name", "message", "stacktrace")]
    found = foreign_dead_letter.read_foreign_dead_letter(
        [("__connect.errors.stage", huge), *((f"__connect.errors.exception.{name}", value) for name, value in headers)]
    )
    texts = (found.reason, found.error_class, found.error_message, found.error_traceback)
    assert [len(text) for text in texts] == [MAX_CLASS, MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK]
    assert not any("\0" in text for text in texts)


@given(HEADERS)
def test_whatever_lies_in_the_headers_is_read_without_an_error_and_nothing_is_added(headers: list[Header]):
    found = foreign_dead_letter.read_foreign_dead_letter(headers)
    assert [header for header in headers if header in found.theirs] == list(found.theirs)
    numbers = (found.partition, found.offset, found.timestamp, found.attempts)
    assert all(number is None or 0 <= number < 2**63 for number in numbers)
    assert found.partition is None or found.partition < 2**31
    assert found.attempts < 2**31
    texts = (found.topic, found.group, found.reason, found.error_class, found.error_message, found.error_traceback)
    assert "\0" not in "".join(texts)
    "".join(texts).encode("utf-8")


@given(st.sampled_from(sorted(REAL)), HEADERS)
def test_a_producers_headers_change_nothing_of_what_a_framework_says_behind_them(kind: str, headers: list[Header]):
    names = {name for known in FOREIGN_FORMATS for name in known.says}
    producers = tuple(header for header in headers if header[0] not in names)
    written = REAL[kind][len(PRODUCERS) :]
    alone, behind = (
        foreign_dead_letter.read_foreign_dead_letter(written),
        foreign_dead_letter.read_foreign_dead_letter([*producers, *written]),
    )
    assert behind.theirs == producers
    assert behind == ForeignDeadLetter(
        **{**{field: getattr(alone, field) for field in alone.__slots__}, "theirs": producers}
    )
