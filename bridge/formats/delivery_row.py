"""A row of the Celery header: the record and the metadata of its delivery."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.errors import UnreadableRecord
from bridge.formats.attempt_history import pack_history, unpack_history
from bridge.formats.delivery import NO_ATTEMPTS, Attempts, Dead, Delivery, Header, Message, Via
from bridge.formats.failure import Failure
from bridge.formats.outbox import OutgoingMessage
from bridge.kafka.clients import Record, headers_of

#: The fields of a delivery that its metadata has if they are not empty.
_WRITTEN: Final = ("number", "first_failed_at", "publish_tries", "error", "ended", "due", "again", "once", "trace")


class DeliveryMetadata(NamedTuple):
    """The metadata of one delivery in a header.

    Attributes:
        runs: how often the handler ran for it.
        attempts: what became of that.
        number: how often it was parked or replayed.
        error: the last failure in words.
        first_failed_at: milliseconds since the epoch, or None.
        dead: why it is dead, where Kafka has not taken its dead letter yet; else empty.
        via: the record of a retry or replay topic by which it came.
    """

    runs: int = 0
    attempts: Attempts = NO_ATTEMPTS
    number: int = 0
    error: str = ""
    first_failed_at: int | None = None
    dead: str = ""
    via: Via | None = None

    @classmethod
    def from_columns(cls, more: Mapping[str, Any], via: Via | None) -> "DeliveryMetadata":
        """Return the metadata; `via` is the partition that the header names."""
        first, dead = more.get("first_failed_at"), more.get("dead") or {}
        return cls(
            int(more.get("attempts", 0)),
            read_metadata_attempts(more),
            int(more.get("number", 0)),
            str(more.get("error", "")),
            int(first) if first else None,
            str(dead.get("reason", "")),
            None if via is None else via._replace(offset=int(more["via"])),
        )


def write_metadata(delivery: Delivery) -> dict[str, Any]:
    """Return the metadata of a delivery that is not empty, as JSON-able data.

    `attempts` and `failures` are what the first version has: how often it ran, and how many runs spent a retry.
    """
    more: dict[str, Any] = {name: value for name in _WRITTEN if (value := getattr(delivery, name))}
    if delivery.via is not None:
        more["via"] = delivery.via.offset
    if delivery.after is not None:
        more["after"] = delivery.after
    if delivery.outgoing:
        more["outgoing"] = [each.to_data() for each in delivery.outgoing]
    if delivery.history:
        more["history"] = pack_history(delivery.history)
    if delivery.runs or any(delivery.attempts):
        failed, lost, postponed, replayed = delivery.attempts
        counts = {"attempts": delivery.runs, "failures": failed, "lost": lost, "replayed": replayed}
        more.update((name, count) for name, count in counts.items() if count)
        # Always written: older versions count what lacks it as neither failed nor postponed.
        more["postponed"] = postponed
    return more


def add_death(dead: Dead | None, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata with the reason why the delivery is dead, if it is."""
    if dead is None:
        return dict(more or {})
    version = {"version": dead.version} if dead.version else {}
    return {**(more or {}), "dead": {"reason": dead.reason, **version, **dead.failure.to_data()}}


def read_delivery(
    message: Message, handler: str, runs: int, more: Mapping[str, Any], via: Via | None = None
) -> Delivery:
    """Return the delivery of a message with this metadata.

    Parameters:
        via: the partition of a retry or replay topic that it came by; its offset there is in `more`.
    """
    dead = more.get("dead")
    return Delivery(
        message=message,
        handler=handler,
        number=int(more.get("number", 0)),
        runs=runs,
        attempts=message.attempts,
        first_failed_at=int(more.get("first_failed_at") or 0) or None,
        dead=None if dead is None else Dead(str(dead["reason"]), Failure.from_data(dead), str(dead.get("version", ""))),
        publish_tries=int(more.get("publish_tries", 0)),
        error=str(more.get("error", "")),
        ended=str(more.get("ended") or ""),
        due=float(more["due"]) if more.get("due") else None,
        via=None if via is None else via._replace(offset=int(more["via"])),
        after=int(more["after"]) if more.get("after") is not None else None,
        outgoing=tuple(map(OutgoingMessage.from_data, more.get("outgoing") or ())),
        again=str(more.get("again") or ""),
        once=bool(more.get("once")),
        trace=str(more.get("trace") or ""),
        history=unpack_history(more["history"]) if "history" in more else (),
    )


def read_metadata_attempts(more: Mapping[str, Any]) -> Attempts:
    """Return the attempts from a delivery's metadata."""
    failed, lost = int(more.get("failures", 0)), int(more.get("lost", 0))
    # Older versions write the number of runs, and how many of them failed.
    postponed = more["postponed"] if "postponed" in more else max(0, int(more.get("attempts", 0)) - failed)
    return Attempts(failed, lost, int(postponed), int(more.get("replayed", 0)))


logger = logging.getLogger(__name__)


class DeliveryRow(NamedTuple):
    """A record before it is handed off; `dead` is set if it cannot be read.

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
    def from_delivery(cls, delivery: Delivery) -> "DeliveryRow":
        """Return the row of a delivery that was parked or sent back."""
        message = delivery.message
        more = write_metadata(delivery)
        return cls(
            message.offset, message.timestamp, message.key, message.value, message.headers, delivery.dead, more or None
        )

    @property
    def size(self) -> int:
        """Return the bytes of its key, value and headers."""
        carried = sum(len(name) + len(given or b"") for name, given in self.headers) if self.headers else 0
        return len(self.key or b"") + len(self.value or b"") + carried


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A marker in place of headers that Python's client cannot read."""

    row: DeliveryRow


def make_row(record: Record) -> DeliveryRow:
    """Return a record as a row to hand off.

    A record that Python's client cannot read, such as one with a header name that is not UTF-8, becomes a dead
    delivery with the parts that can be read: it goes to the dead-letter topic, and no handler gets it.
    """
    headers = _read_headers(record)
    if isinstance(headers, _Unreadable):
        return headers.row
    try:
        return DeliveryRow(record.offset() or 0, _timestamp(record), record.key(), record.value(), headers)
    except Exception as error:
        return _dead_row(record, error)


def measure_record(record: Record) -> int:
    """Return the bytes of a record's key, value and headers; headers that cannot be read count as 0."""
    headers = _read_headers(record)
    if isinstance(headers, _Unreadable):
        headers = ()
    carried = sum(len(name) + len(given or b"") for name, given in headers)
    return len(record.value() or b"") + len(record.key() or b"") + carried


def _read_headers(record: Record) -> Any:
    """Return a record's headers, or the marker if they cannot be read."""
    try:
        return headers_of(record)
    except Exception as error:  # SystemError, where the client's own C code fails
        unreadable = _Unreadable(_dead_row(record, error))
        record.set_headers(unreadable)  # type: ignore[arg-type]
        return unreadable


def _dead_row(record: Record, error: Exception) -> DeliveryRow:
    parts: dict[str, Any] = {}
    for name, read in (("timestamp", _timestamp), ("key", lambda r: r.key()), ("value", lambda r: r.value())):
        try:
            parts[name] = read(record)
        except Exception:  # likewise
            parts[name] = None
    cause = error.__cause__ or error
    why = (
        f"{record.topic()}-{record.partition()}-{record.offset()}: Kafka's client cannot read the whole record "
        f"({type(cause).__name__}: {cause}). A header's name must be UTF-8. Its dead letter has no headers of its own."
    )
    logger.error("%s", why)
    dead = Dead("undecodable", Failure.from_error(UnreadableRecord(why), traceback=False))
    return DeliveryRow(record.offset() or 0, parts["timestamp"], parts["key"], parts["value"], None, dead)


def _timestamp(record: Record) -> int | None:
    kind, timestamp = record.timestamp()
    return int(timestamp) if kind else None
