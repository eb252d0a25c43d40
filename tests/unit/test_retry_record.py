"""A record of a retry or replay topic: what is written is read back, and nobody's headers are lost or believed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.formats import retry_record
from bridge.formats.delivery import Attempts, Delivery, Message, Via
from bridge.formats.failure import Failure
from bridge.formats.record_headers import RETRY_HEADERS
from bridge.formats.retry_record import RetryRecord

VIA = Via("orders.retry.5m", 3, 17, "retry-log")


class Record:
    """A record of a retry topic."""

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
        return VIA.topic

    def partition(self) -> int:
        return VIA.partition

    def offset(self) -> int:
        return VIA.offset


def read(headers: Any, key: bytes | None = b"k", value: bytes | None = b"v") -> RetryRecord | None:
    record: Any = Record(headers, key, value)
    return retry_record.read_retry_record(record, "cluster", VIA.topic_id)


names = st.text("abcxyz._-", min_size=1, max_size=20)
payloads = st.none() | st.binary(max_size=20)
counts = st.integers(0, 10_000)
#: Names that producers give theirs, ours among them.
theirs = st.lists(st.tuples(st.sampled_from([*sorted(RETRY_HEADERS), "trace", ""]), payloads), max_size=6)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    group, log, runs, attempts = draw(names), draw(names), draw(counts), draw(st.builds(Attempts, *[counts] * 4))
    topic, partition, offset = draw(names), draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 2**63 - 1))
    handler, again = draw(names), draw(st.sampled_from(["", "plan-7"]))
    message = Message(
        topic,
        partition,
        offset,
        draw(payloads),
        draw(payloads),
        tuple(draw(theirs)),
        draw(st.none() | st.integers(0, 2**53)),
        runs + 1,
        attempts,
        f"{topic}-{partition}-{offset}:{handler}{' again plan-7' if again else ''}",
        f"cluster {group} {log}",
    )
    return Delivery(
        message,
        handler,
        number=draw(counts),
        runs=runs,
        attempts=attempts,
        first_failed_at=draw(st.none() | st.integers(1, 2**53)),
        error=draw(st.sampled_from(["", "shop.Declined", "OSError: no: really"])),
        via=VIA,
        after=draw(st.none() | st.integers(0, 2**53)),
        again=again,
        once=draw(st.booleans()),
    )


@given(deliveries(), st.integers(0, 2**42), st.none() | st.integers(0, 2**42))
def test_what_was_written_is_read_back_whatever_headers_the_producer_gave(delivery, due, until):
    group = delivery.message.origin.split()[1]
    found = read(
        retry_record.retry_headers(delivery, group, due=due, until=until), delivery.message.key, delivery.message.value
    )
    later = until / 1000 if until is not None and until > due else None
    assert found == RetryRecord(replace(delivery, due=later), group, delivery.topic_id, due, 0)
    for name in ("attempt", "attempts", "delivery", "origin"):
        assert getattr(found.delivery.message, name) == getattr(delivery.message, name)


plain = Delivery(
    Message("orders", 3, 1234, b"k", b"v", (("trace", b"1"),), 5, origin="cluster g log"),
    "orders.handlers.charge",
    number=2,
    runs=4,
    attempts=Attempts(3, 0, 1),
    first_failed_at=1_000,
    error="OSError: no",
)
FAILURE = Failure("OSError", "größe", "Traceback", 2_000)
OURS = retry_record.retry_headers(plain, "g", due=9_000, until=10_000, failure=FAILURE)


def test_a_parked_record_says_what_it_is_in_ascii():
    assert dict(OURS) == {
        "trace": b"1",
        "origin_topic": b"orders",
        "origin_partition": b"3",
        "origin_offset": b"1234",
        "origin_timestamp": b"5",
        "origin_topic_id": b"log",
        "handler": b"orders.handlers.charge",
        "bridge_group": b"g",
        "delivery_number": b"2",
        "retry_number": b"4",
        "retry_timestamp": b"9000",
        "retry_until": b"10000",
        "attempts": b"4",
        "attempts_failed": b"3",
        "attempts_lost": b"0",
        "attempts_postponed": b"1",
        "attempts_replayed": b"0",
        "error_class": b"OSError",
        "error_message": rb"gr\xf6\xdfe",
        "first_failed_at": b"1000",
        "failed_at": b"2000",
    }


def test_what_waits_longer_than_its_topic_does_not_run_before():
    found = read(OURS)
    assert found is not None
    assert (found.due, found.delivery.due, found.failed_at) == (9_000, 10.0, 2_000)


def test_headers_that_somebody_has_put_behind_ours_are_the_producers():
    found = read([("a", b"1"), *OURS[1:], ("mesh", b"x")])
    assert found is not None
    assert found.delivery.message.headers == (("a", b"1"), ("mesh", b"x"))


def test_parked_twice_it_has_our_headers_once():
    once = read(OURS)
    assert once is not None
    again = retry_record.retry_headers(once.delivery, "g", due=9_000, until=10_000, failure=FAILURE)
    assert again == OURS


def test_whose_it_is_can_be_told_for_whoever_looks_whether_it_is_there():
    record: Any = Record(OURS)
    assert retry_record.read_retry_key(record) == (plain.identity, "g", 2)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        SystemError("a name that is no UTF-8"),
        [("origin_topic", b"orders")],
        *([header for header in OURS if header[0] != name] for name in ("origin_partition", "handler", "bridge_group")),
        *(
            [*OURS, (name, value)]
            for name in ("origin_partition", "origin_offset")
            for value in (b"seven", b"-1", b"", None, "²".encode(), b"9" * 5_000, b"9223372036854775808")
        ),
        [*OURS, ("origin_partition", b"2147483648")],
        [*OURS, ("handler", b"")],
        [*OURS, ("origin_topic", b"orders")],
    ],
)
def test_another_producers_record_is_none_of_ours(headers: Any):
    assert read(headers) is None


@given(
    st.none() | st.lists(st.tuples(st.sampled_from([*sorted(RETRY_HEADERS), "x"]), st.none() | st.binary(max_size=30))),
    st.booleans(),
)
def test_whatever_headers_a_record_has_it_is_read_or_none_of_ours(headers: Any, behind_ours: bool):
    found = read([*OURS, *(headers or [])] if behind_ours else headers)
    if found is not None:
        assert 0 <= found.delivery.message.offset < 2**63
        assert 0 <= found.delivery.message.partition < 2**31
        assert min(found.due, found.delivery.runs, found.delivery.number, *found.delivery.attempts) >= 0
        assert found.delivery.message.topic
        assert found.delivery.handler
