"""A dead letter on Kafka: its headers, written, read as a summary and read in full."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bridge.formats import record_headers as header
from bridge.formats.attempt_history import History, read_history, write_history
from bridge.formats.delivery import Attempts, Dead, Delivery, Headers
from bridge.formats.delivery_identity import OFFSETS, PARTITIONS, Origin
from bridge.formats.failure import Failure, cut
from bridge.formats.record_headers import RecordHeaders, append_block, read_number, require_number, split_block
from bridge.formats.untrusted_json import is_time
from bridge.kafka.clients import Record, headers_of

#: The headers without which a record is none of our dead letters.
_NEEDED: Final = (
    header.ORIGIN_TOPIC,
    header.ORIGIN_PARTITION,
    header.ORIGIN_OFFSET,
    header.HANDLER,
    header.BRIDGE_GROUP,
)


class DeadLetterKey(NamedTuple):
    """The delivery that a dead letter is of: its source record, the handler and the id of the source topic's log.

    A recreated topic or truncated log has the same offsets again: `topic_id`, the log's id, tells them apart, or in a
    dead letter of an older version the record's `timestamp`.
    A delivery that was sent back and died again has a dead letter for each time: `replayed` is how often it had been
    sent back, and `again` the request to run it although it was done.
    """

    partition: int
    offset: int
    handler: str
    topic_id: str = ""
    timestamp: str = ""
    replayed: int = 0
    again: str = ""

    @classmethod
    def those_of(cls, delivery: Delivery) -> "tuple[DeadLetterKey, DeadLetterKey]":
        """Return the keys that a dead letter of this delivery may have, as this version and as older versions write
        them.
        """
        message = delivery.message
        place = (message.partition, message.offset, delivery.handler)
        which = (delivery.attempts.replayed, delivery.again)
        return cls(*place, delivery.topic_id, "", *which), cls(*place, "", _timestamp_text(message.timestamp), *which)

    def is_of(self, topic_id: str) -> bool:
        """Return whether the delivery may belong to the log with this id."""
        return self.topic_id in ("", topic_id)


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A dead letter without its record: where it lies, which delivery it is of, and why that died.

    Attributes:
        place: `orders.dlq-3-17`.
        topic: the source topic.
        group: the consumer group that handed the delivery off.
        runs: how often the handler ran.
        attempts: how those ended; `None` in a dead letter of an older version.
        failed_at: Unix time.
        key: of the record.
    """

    place: str
    topic: str
    whose: DeadLetterKey
    group: str
    runs: int
    attempts: Attempts | None
    reason: str
    error: str
    failed_at: float
    key: bytes | None = None


def dead_letter_headers(delivery: Delivery, dead: Dead, group: str) -> RecordHeaders:
    """Return the headers of a dead letter: the producer's, then ours."""
    failure = dead.failure
    ours = {
        header.ORIGIN_TOPIC: delivery.message.topic,
        header.ORIGIN_PARTITION: str(delivery.message.partition),
        header.ORIGIN_OFFSET: str(delivery.message.offset),
        header.ORIGIN_TIMESTAMP: _timestamp_text(delivery.message.timestamp),
        header.ORIGIN_TOPIC_ID: delivery.topic_id,
        header.HANDLER: delivery.handler,
        header.BRIDGE_GROUP: group,
        header.DELIVERY_NUMBER: str(delivery.number),
        **({header.REPLAY_AGAIN: delivery.again} if delivery.again else {}),
        **write_attempt_headers(delivery),
        **({header.HANDLERS_VERSION: dead.version} if dead.version else {}),
        header.REASON: dead.reason,
        header.ERROR_CLASS: failure.error_class,
        header.ERROR_MESSAGE: failure.error_message,
        header.ERROR_TRACEBACK: failure.error_traceback,
        header.FIRST_FAILED_AT: str(delivery.first_failed_at or failure.failed_at),
        header.FAILED_AT: str(failure.failed_at),
        **({header.TRACE: delivery.trace} if delivery.trace else {}),
        **({header.ATTEMPT_HISTORY: write_history(delivery.history)} if delivery.history else {}),
    }
    return append_block(delivery.message.headers, ours)


def write_attempt_headers(delivery: Delivery) -> dict[str, str]:
    """Return the headers with the number of runs and how they ended."""
    counts = zip(header.ATTEMPTS_BY_END, map(str, delivery.attempts), strict=True)
    return {header.ATTEMPTS: str(delivery.runs), **dict(counts)}


def read_attempt_headers(headers: Mapping[str, str]) -> Attempts:
    """Return the attempts from the headers that `write_attempt_headers` made."""
    return Attempts(*[read_number(headers, name) for name in header.ATTEMPTS_BY_END])


def shorten_failure(failure: Failure) -> tuple[Failure, ...]:
    """Return a failure in full and in two shorter forms, for a record that would be too large for its topic."""
    short = cut(failure.error_message, 200)
    return (
        failure,
        Failure(failure.error_class, short, "", failure.failed_at),
        Failure(failure.error_class, "", "", failure.failed_at),
    )


def read_dead_letter_summary(record: Record) -> DeadLetterSummary | None:
    """Return the summary of a dead letter; `None` if the record is none of ours."""
    headers = _text_headers(record)
    if any(name not in headers for name in _NEEDED):
        return None
    try:
        place = (
            require_number(headers, header.ORIGIN_PARTITION),
            require_number(headers, header.ORIGIN_OFFSET),
            headers[header.HANDLER],
        )
    except ValueError:
        return None
    if place[0] >= PARTITIONS or place[1] >= OFFSETS:
        return None
    failed_at = read_number(headers, header.FAILED_AT) / 1000
    topic_id, timestamp = headers.get(header.ORIGIN_TOPIC_ID, ""), headers.get(header.ORIGIN_TIMESTAMP, "")
    which = (read_number(headers, header.ATTEMPTS_REPLAYED), headers.get(header.REPLAY_AGAIN, ""))
    return DeadLetterSummary(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        topic=headers[header.ORIGIN_TOPIC],
        whose=DeadLetterKey(*place, topic_id, "" if topic_id else timestamp, *which),
        group=headers[header.BRIDGE_GROUP],
        runs=read_number(headers, header.ATTEMPTS),
        attempts=read_attempt_headers(headers) if header.ATTEMPTS_FAILED in headers else None,
        reason=headers.get(header.REASON, ""),
        error=f"{headers.get(header.ERROR_CLASS, '')}: {headers.get(header.ERROR_MESSAGE, '')}".rstrip(": "),
        failed_at=failed_at if is_time(failed_at) else 0.0,
        key=None if (key := record.key()) is None else bytes(key),
    )


def _text_headers(record: Record) -> dict[str, str]:
    """Return a record's headers as text; empty if Python's client cannot read them."""
    try:
        headers: Any = dict(headers_of(record))
    except Exception:
        return {}
    return {name: (value or b"").decode("utf-8", "replace") for name, value in headers.items()}


def _timestamp_text(timestamp: int | None) -> str:
    """Return a record's timestamp as a header has it."""
    return "" if timestamp is None else str(timestamp)


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead letter of ours.

    Attributes:
        place: where the letter lies, `orders.dlq-3-17`.
        origin: the delivery and its source record.
        timestamp: of the source record, ms since the epoch; `None` if it had none.
        key, value: byte for byte as produced.
        theirs: the producer's own headers, in order.
        number: how often the delivery had been parked or replayed; what is sent back has a higher one.
        runs: how often the handler ran, or was to run.
        attempts: how those ended since it was last sent back; none in dead letters of older versions.
        reason: why it died, a word of `tasks.policy.failure_decision.REASONS`.
        error_class, error_message, error_traceback: the last failure, cut as bridge.formats.failure says.
        first_failed_at, failed_at: Unix time; 0.0 where the letter does not say.
        version: of the handlers' code that failed; empty where that is not known.
        again: the request to run it although it was done; empty: there was none.
        trace: the context of its last hop, if traces were on.
        history: its last attempts since it was last sent back.
    """

    place: str
    origin: Origin
    timestamp: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    theirs: Headers = field(repr=False)
    number: int
    runs: int
    attempts: Attempts
    reason: str
    error_class: str
    error_message: str
    error_traceback: str = field(repr=False)
    first_failed_at: float
    failed_at: float
    version: str
    again: str
    trace: str = ""
    history: History = ()

    @property
    def identity(self) -> str:
        """Return the delivery's identity, `orders-3-1234:orders.handlers.charge`."""
        return self.origin.identity


def read_dead_letter(record: Record) -> DeadLetterRecord | None:
    """Return the dead letter in a record; `None` if the record is none of ours."""
    try:
        headers: Any = headers_of(record)
        theirs, ours = split_block(headers, header.DEAD_LETTER_HEADERS)
        origin = _origin(ours)
        return None if origin is None else _make_record(record, origin, theirs, ours)
    except Exception:
        # Another client wrote headers that Python's cannot read, or text where a number belongs.
        return None


def _origin(ours: dict[str, str]) -> Origin | None:
    topic, handler, group = ours.get(header.ORIGIN_TOPIC), ours.get(header.HANDLER), ours.get(header.BRIDGE_GROUP)
    partition, offset = require_number(ours, header.ORIGIN_PARTITION), require_number(ours, header.ORIGIN_OFFSET)
    if not topic or not handler or not group or partition >= PARTITIONS or offset >= OFFSETS:
        return None
    return Origin(topic, ours.get(header.ORIGIN_TOPIC_ID, ""), partition, offset, handler, group)


def _make_record(record: Record, origin: Origin, theirs: Headers, ours: dict[str, str]) -> DeadLetterRecord:
    runs = read_number(ours, header.ATTEMPTS)
    return DeadLetterRecord(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        origin=origin,
        timestamp=read_number(ours, header.ORIGIN_TIMESTAMP) if ours.get(header.ORIGIN_TIMESTAMP) else None,
        key=record.key(),
        value=record.value(),
        theirs=theirs,
        # Older versions do not write it; a delivery is rarely parked more often than it runs.
        number=read_number(ours, header.DELIVERY_NUMBER) if header.DELIVERY_NUMBER in ours else runs,
        runs=runs,
        attempts=read_attempt_headers(ours),
        reason=ours.get(header.REASON, ""),
        error_class=ours.get(header.ERROR_CLASS, ""),
        error_message=ours.get(header.ERROR_MESSAGE, ""),
        error_traceback=ours.get(header.ERROR_TRACEBACK, ""),
        first_failed_at=read_number(ours, header.FIRST_FAILED_AT) / 1000,
        failed_at=read_number(ours, header.FAILED_AT) / 1000,
        version=ours.get(header.HANDLERS_VERSION, ""),
        again=ours.get(header.REPLAY_AGAIN, ""),
        trace=ours.get(header.TRACE, ""),
        history=read_history(ours.get(header.ATTEMPT_HISTORY, "")),
    )
