"""A record of Kafka as it travels through Celery; one that cannot be read is dead from the start."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bridge.errors import UnreadableRecord
from bridge.kafka import Record, headers_of
from bridge.records.failure import Failure
from bridge.records.message import Dead, Delivery, Header
from bridge.records.more import more_of

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """A record as it is about to be handed off; one that is dead from the start has `dead`.

    Attributes:
        more: what is known of its delivery besides, where that is not new (`Row.of`).
    """

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    dead: Dead | None = None
    more: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, delivery: Delivery) -> "Row":
        """A delivery that has a past: parked, or sent back."""
        message = delivery.message
        more = more_of(delivery)
        return cls(
            message.offset, message.timestamp, message.key, message.value, message.headers, delivery.dead, more or None
        )

    @property
    def size(self) -> int:
        """Bytes of its key, value and headers."""
        carried = sum(len(name) + len(given or b"") for name, given in self.headers) if self.headers else 0
        return len(self.key or b"") + len(self.value or b"") + carried


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands in place of a record's headers."""

    row: Row


def row_of(record: Record) -> Row:
    """A record as it is handed off.

    Other clients write what Python's cannot read: a header's name that is no UTF-8, for one. Such a record is a
    delivery that is dead already, with what can be read of it: it goes to the dead letters, and no handler sees it.
    """
    headers = _headers(record)
    if isinstance(headers, _Unreadable):
        return headers.row
    try:
        return Row(record.offset() or 0, _timestamp(record), record.key(), record.value(), headers)
    except Exception as error:
        return _dead_row(record, error)


def size_of(record: Record) -> int:
    """Bytes of a record's key, value and headers; headers that cannot be read count nothing."""
    headers = _headers(record)
    if isinstance(headers, _Unreadable):
        headers = ()
    carried = sum(len(name) + len(given or b"") for name, given in headers)
    return len(record.value() or b"") + len(record.key() or b"") + carried


def _headers(record: Record) -> Any:
    """A record's headers, or what stands in their place once they could not be read."""
    try:
        return headers_of(record)
    except Exception as error:  # SystemError, where the client's own C code fails
        unreadable = _Unreadable(_dead_row(record, error))
        record.set_headers(unreadable)  # type: ignore[arg-type]
        return unreadable


def _dead_row(record: Record, error: Exception) -> Row:
    parts: dict[str, Any] = {}
    for name, read in (("timestamp", _timestamp), ("key", lambda r: r.key()), ("value", lambda r: r.value())):
        try:
            parts[name] = read(record)
        except Exception:  # the same
            parts[name] = None
    cause = error.__cause__ or error
    why = (
        f"{record.topic()}-{record.partition()}-{record.offset()} cannot be read whole by Kafka's client "
        f"({type(cause).__name__}: {cause}). A header's name must be UTF-8. Its dead letter has no headers of its own."
    )
    logger.error("%s", why)
    dead = Dead("undecodable", Failure.of(UnreadableRecord(why), traceback=False))
    return Row(record.offset() or 0, parts["timestamp"], parts["key"], parts["value"], None, dead)


def _timestamp(record: Record) -> int | None:
    kind, timestamp = record.timestamp()
    return int(timestamp) if kind else None
