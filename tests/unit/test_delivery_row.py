"""A record that the client cannot read becomes a delivery that is dead, with all that can be read of it."""

from typing import Any

import pytest

from bridge.formats.celery_header import from_header, header_of
from bridge.formats.delivery_row import make_row


class Record:
    """A record of which some parts cannot be read."""

    def __init__(self, *unreadable: str) -> None:
        self._unreadable = unreadable
        self._headers: Any = [("a", b"1")]

    def _part(self, name: str, value: Any) -> Any:
        if name in self._unreadable:
            raise SystemError("returned a result with an exception set")
        return value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7

    def timestamp(self) -> Any:
        return self._part("timestamp", (1, 1_700_000_000_000))

    def key(self) -> Any:
        return self._part("key", b"k")

    def value(self) -> Any:
        return self._part("value", b"v")

    def headers(self) -> Any:
        return self._part("headers", self._headers)

    def set_headers(self, headers: Any) -> None:
        self._unreadable, self._headers = (), headers


@pytest.mark.parametrize("part", ["headers", "key", "value", "timestamp"])
def test_whatever_cannot_be_read_the_rest_is_kept_and_the_delivery_is_dead(part: str):
    record: Any = Record(part)
    batch = from_header("work", header_of("orders", 3, "c", "g", "id", None, [make_row(record)]))
    (delivery,) = batch.deliveries
    assert delivery.dead is not None
    assert delivery.dead.reason == "undecodable"
    assert "orders-3-7: Kafka's client cannot read" in delivery.dead.failure.error_message
    message = delivery.message
    assert message.key == (None if part == "key" else b"k")
    assert message.value == (None if part == "value" else b"v")
    assert message.timestamp == (None if part == "timestamp" else 1_700_000_000_000)
    assert message.headers == ()
    # Another handler's delivery of the same record.
    assert from_header("second", header_of("orders", 3, "c", "g", "id", None, [make_row(record)])).deliveries[0].dead


def test_a_record_that_can_be_read_is_alive_with_its_headers():
    record: Any = Record()
    (delivery,) = from_header("work", header_of("orders", 3, "c", "g", "id", None, [make_row(record)])).deliveries
    assert delivery.dead is None
    assert delivery.message.headers == (("a", b"1"),)
