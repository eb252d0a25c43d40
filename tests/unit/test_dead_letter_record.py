"""A dead letter in full: what was written is read back, whatever the producer gave; what is none of ours is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import dead_letter_record
from bridge.formats.dead_letter_record import DeadLetterRecord, read_dead_letter
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.delivery_identity import Origin
from bridge.formats.failure import Failure
from bridge.formats.record_headers import DEAD_LETTER_HEADERS


class Record:
    """A record of the dead-letter topic."""

    def __init__(self, headers: Any, key: bytes | None = b"k", value: bytes | None = b"v") -> None:
        self._headers, self._key, self._value = headers, key, value

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def topic(self) -> str:
        return "orders.dlq"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17


def read(headers: Any, key: bytes | None = b"k", value: bytes | None = b"v") -> DeadLetterRecord | None:
    record: Any = Record(headers, key, value)
    return read_dead_letter(record)


names = st.text("abcxyz._-", min_size=1, max_size=20)
payloads = st.none() | st.binary(max_size=20)
counts = st.integers(0, 10_000)


@given(
    origin=st.builds(Origin, names, names, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), names, names),
    timestamp=st.none() | st.integers(0, 2**53),
    key=payloads,
    value=payloads,
    theirs=st.lists(st.tuples(st.sampled_from([*sorted(DEAD_LETTER_HEADERS), "trace", ""]), payloads), max_size=6),
    number=counts,
    runs=counts,
    attempts=st.builds(Attempts, *[counts] * 4),
    first=st.none() | st.integers(1, 2**42),
    version=st.sampled_from(["", "1.4.2"]),
    again=st.sampled_from(["", "plan-7"]),
)
def test_what_was_written_is_read_back_whatever_the_producer_gave(
    origin, timestamp, key, value, theirs, number, runs, attempts, first, version, again
):
    message = Message(
        origin.topic, origin.partition, origin.offset, key, value, tuple(theirs), timestamp, origin=f"c g {origin[1]}"
    )
    delivery = Delivery(
        message, origin.handler, number=number, runs=runs, attempts=attempts, first_failed_at=first, again=again
    )
    dead = Dead("exhausted", Failure("shop.Declined", "no", "Traceback", 9_000), version)
    assert read(dead_letter_record.dead_letter_headers(delivery, dead, origin.group), key, value) == DeadLetterRecord(
        place="orders.dlq-3-17",
        origin=origin,
        timestamp=timestamp,
        key=key,
        value=value,
        theirs=tuple(theirs),
        number=number,
        runs=runs,
        attempts=attempts,
        reason="exhausted",
        error_class="shop.Declined",
        error_message="no",
        error_traceback="Traceback",
        first_failed_at=(first or 9_000) / 1000,
        failed_at=9.0,
        version=version,
        again=again,
    )


OURS = dead_letter_record.dead_letter_headers(
    Delivery(Message("orders", 3, 1234, timestamp=5, origin="c g log"), "work", number=2, runs=4),
    Dead("permanent", Failure("E", "m", "T", 1_000)),
    "g",
)


def without(*left_out: str) -> list[Any]:
    return [header for header in OURS if header[0] not in left_out]


def test_a_letter_of_an_older_version_is_read_with_what_it_says():
    found = read(
        [h for h in without("origin_topic_id", "delivery_number", "first_failed_at") if "attempts_" not in h[0]]
    )
    assert found is not None
    assert (found.origin.topic_id, found.number, found.attempts, found.first_failed_at) == ("", 4, Attempts(), 0.0)
    assert found.identity == "orders-3-1234:work"


def test_headers_that_somebody_has_put_behind_ours_are_the_producers():
    found = read([("handler", b"theirs"), *OURS, ("mesh", b"x")])
    assert found is not None
    assert (found.theirs, found.origin.handler) == ((("handler", b"theirs"), ("mesh", b"x")), "work")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        SystemError("a name that is no UTF-8"),
        *(without(name) for name in ("origin_topic", "origin_partition", "origin_offset", "handler", "bridge_group")),
        [*OURS, ("origin_offset", b"seven")],
        [*OURS, ("origin_partition", b"2147483648")],
        [*OURS, ("handler", b"")],
    ],
)
def test_another_producers_record_is_no_letter_of_ours(headers: Any):
    assert read(headers) is None
