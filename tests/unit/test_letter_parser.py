"""Records of dead-letter topics, read: whatever they hold, a letter that a database takes."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.deadletters.model.letter_parser import AHEAD, HIGHEST, LONGEST_NAME, OURS, parse_letter
from bridge.formats import dead_letter_record
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.failure import MAX_MESSAGE, MAX_TRACEBACK, Failure

NOW = 1_800_000_000_000
#: When Kafka got the letters.
GOT = 1_790_000_000_000


class Record:
    """What the reader asks of a record of Kafka's client."""

    def __init__(self, headers: Any, timestamp: tuple[int, int] = (1, GOT)) -> None:
        self._headers, self._timestamp = headers, timestamp

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

    def key(self) -> bytes:
        return b"\xff\x00"

    def value(self) -> bytes:
        return b"\x00"

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


def headers(**other: str) -> list[tuple[str, bytes | None]]:
    source = Message("orders", 1, 7, headers=(("theirs", b"\xfe"), ("theirs", None)), timestamp=1_000)
    delivery = Delivery(
        source, "orders.handlers.charge", number=2, runs=5, attempts=Attempts(4, 1), first_failed_at=NOW - 9
    )
    text = 'Traceback (most recent call last):\n  File "/x/orders/bank.py", line 3, in pay\nValueError: no\n'
    dead = Dead("exhausted", Failure("builtins.ValueError", "no", text, NOW - 5), "1.2")
    found = dict(dead_letter_record.dead_letter_headers(delivery, dead, "shop")[2:]) | {
        name: said.encode() for name, said in other.items()
    }
    return [("theirs", b"\xfe"), ("theirs", None), *found.items()]  # type: ignore[list-item]


def letter(found: Any, **other: Any) -> Any:
    record: Any = Record(found, **other)
    return parse_letter(record, "dlq-id", NOW)


def test_ours_says_all_that_a_worker_wrote():
    found = letter(headers())
    assert str(found.identity) == "orders-1-7:orders.handlers.charge"
    assert found.identity.consumer_group == "shop"
    assert found.kind.group == ("orders.handlers.charge", "builtins.ValueError", "orders/bank.py:pay")
    assert found.kind[1:-1] == ("orders", OURS, "shop", "exhausted", "1.2")
    assert (found.number, found.runs, found.attempts) == (2, 5, Attempts(4, 1))
    assert (found.first_failed_at, found.failed_at, found.timestamp) == (NOW - 9, NOW - 5, 1_000)
    assert found.headers == (("theirs", b"\xfe"), ("theirs", None))
    assert (found.topic, found.partition, found.offset) == ("orders.dlq", 3, 17)


def test_of_letters_of_one_fault_the_message_makes_no_other_group():
    text = 'Traceback (most recent call last):\n  File "/x/orders/bank.py", line 3, in pay\nValueError: no {}\n'
    others = [headers(error_message=f"no {n}", error_traceback=text.format(n)) for n in range(3)]
    assert len({letter(each).kind for each in others}) == 1


def test_a_stranger_is_kept_under_its_own_place():
    found = letter([("a", b"b")])
    assert found.identity == ("", "orders.dlq", "dlq-id", 3, 17, "")
    assert (found.kind.origin, found.kind.topic) == ("unknown", "orders.dlq")
    assert (found.key, found.value) == (b"\xff\x00", b"\x00")
    assert (found.failed_at, found.headers) == (GOT, (("a", b"b"),))


SPRING = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\1"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\7"),
    ("kafka_dlt-original-consumer-group", b"shop"),
    ("kafka_dlt-exception-fqcn", b"shop.Failed"),
    ("kafka_dlt-exception-message", b"no"),
    ("kafka_dlt-exception-stacktrace", b"shop.Failed: no\n\tat shop.Bank.pay(Bank.java:5)\n"),
]


def test_another_framework_s_is_known_by_its_source():
    found = letter(SPRING)
    assert found.identity == ("shop", "orders", "", 1, 7, "")
    assert found.kind.group == ("", "shop.Failed", "shop.Bank.pay")
    assert (found.kind.origin, found.kind.topic, found.number) == ("spring", "orders", 0)


def test_a_partition_that_no_topic_has_is_no_source():
    wrong = [each if "partition" not in each[0] else (each[0], b"\xff\xff\xff\xff") for each in SPRING]
    assert letter(wrong).identity.topic == "orders.dlq"


def test_headers_that_kafka_s_client_cannot_read_are_asked_for_once_and_said():
    found = letter(SystemError("returned NULL without setting an exception"))
    assert "cannot be read" in found.error_message
    assert (found.kind.origin, found.key, found.headers) == ("unknown", b"\xff\x00", ())


@pytest.mark.parametrize(
    ("said", "believed"),
    [(str(NOW + AHEAD), NOW + AHEAD), *((said, GOT) for said in ("9" * 19, "0", "-5", "x", str(NOW + AHEAD + 1)))],
)
def test_a_time_that_can_be_none_is_when_kafka_got_the_letter(said, believed):
    assert letter(headers(failed_at=said)).failed_at == believed
    assert letter(headers(failed_at=said), timestamp=(0, -1)).failed_at in (NOW, believed)


def fits(found: Any) -> None:
    texts = (
        *found.kind.group, *found.kind[1:], found.error_message, found.traceback, found.identity.topic_id,
    )  # fmt: skip
    for text in texts:
        assert "\0" not in text
        text.encode()
    assert all(len(text) <= LONGEST_NAME for text in (*found.kind.group, *found.kind[1:]))
    assert len(found.error_message) <= MAX_MESSAGE
    assert len(found.traceback) <= MAX_TRACEBACK
    assert all(0 <= count <= HIGHEST for count in (found.number, found.runs, *found.attempts, found.identity.partition))
    assert 0 <= found.identity.offset < 2**63
    assert found.timestamp is None or 0 <= found.timestamp < 2**63
    assert 0 < found.first_failed_at <= found.failed_at <= NOW + AHEAD


ODD = (b"9" * 19, b"9" * 30, b"-1", b"\0", b"\xed\xa0\x80", b"x" * 20_000, b"\xff\xff\xff\xff")
SAID = st.one_of(st.binary(max_size=30), st.none(), st.sampled_from(ODD))
NAMES = st.sampled_from(sorted({name for name, _ in headers()} | {name for name, _ in SPRING} | {"\ud800", ""}))


@given(st.lists(st.tuples(NAMES, SAID)), st.booleans())
@example([("origin_topic_id", b"\0")], True)
def test_whatever_headers_say_it_is_a_letter_that_a_database_takes(found, with_ours):
    fits(letter([*(headers() if with_ours else ()), *found]))
