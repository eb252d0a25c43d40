"""A dead letter on Kafka: its headers, written and read side by side, in short for who asks how deliveries died and in
full for who keeps it or sends it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bridge.formats.delivery import Attempts, Dead, Delivery, Headers
from bridge.formats.delivery_identity import OFFSETS, PARTITIONS, Origin
from bridge.formats.failure import Failure, cut
from bridge.formats.header_block import RecordHeaders, append_block, read_number, require_number, split_block
from bridge.formats.untrusted_json import is_time
from bridge.kafka.clients import Record, headers_of

#: Without these a record is no dead letter of ours.
_NEEDED: Final = ("origin_topic", "origin_partition", "origin_offset", "handler", "bridge_group")
_ATTEMPTS: Final = tuple(f"attempts_{name}" for name in Attempts._fields)


class DeadLetterKey(NamedTuple):
    """Whose a dead letter is: partition and offset of its origin, the handler, and the log that they lay in.

    A topic that is made again, or whose log went back, has the same offsets again. `topic_id` is the log's id, as
    deliveries have it; a dead letter of an older version has none, and is told apart by the record's `timestamp`.
    What was sent back and dies again has a letter for each time: `replayed` says how often it had been sent back, and
    `again` by what it was asked to run though it was done.
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
        """What a dead letter of this delivery may say, of this version and of an older one."""
        message = delivery.message
        place = (message.partition, message.offset, delivery.handler)
        which = (delivery.attempts.replayed, delivery.again)
        return cls(*place, delivery.topic_id, "", *which), cls(*place, "", _timestamp_text(message.timestamp), *which)

    def is_of(self, topic_id: str) -> bool:
        """Whether it may be of the log with this id."""
        return self.topic_id in ("", topic_id)


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A dead letter that was read: where it lies, whose delivery it was, and why that died.

    Attributes:
        place: `orders.dlq-3-17`.
        topic: the one in which its message first lay.
        group: the consumer group that handed the delivery off.
        runs: how often the handler ran.
        attempts: what became of that; `None` in a letter of an older version, which does not say.
        failed_at: Unix time.
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


def dead_letter_headers(delivery: Delivery, dead: Dead, group: str) -> RecordHeaders:
    """The producer's headers, and behind them ours."""
    failure = dead.failure
    ours = {
        "origin_topic": delivery.message.topic,
        "origin_partition": str(delivery.message.partition),
        "origin_offset": str(delivery.message.offset),
        "origin_timestamp": _timestamp_text(delivery.message.timestamp),
        "origin_topic_id": delivery.topic_id,
        "handler": delivery.handler,
        "bridge_group": group,
        "delivery_number": str(delivery.number),
        **({"replay_again": delivery.again} if delivery.again else {}),
        **write_attempt_headers(delivery),
        **({"handlers_version": dead.version} if dead.version else {}),
        "reason": dead.reason,
        "error_class": failure.error_class,
        "error_message": failure.error_message,
        "error_traceback": failure.error_traceback,
        "first_failed_at": str(delivery.first_failed_at or failure.failed_at),
        "failed_at": str(failure.failed_at),
    }
    return append_block(delivery.message.headers, ours)


def write_attempt_headers(delivery: Delivery) -> dict[str, str]:
    """How often it ran, and what became of that, as headers."""
    said = zip(_ATTEMPTS, map(str, delivery.attempts), strict=True)
    return {"attempts": str(delivery.runs), **dict(said)}


def read_attempt_headers(found: Mapping[str, str]) -> Attempts:
    """What `attempts_said` wrote."""
    return Attempts(*[read_number(found, name) for name in _ATTEMPTS])


def shorten_failure(failure: Failure) -> tuple[Failure, ...]:
    """What is said of a failure, and what is said where the record is too large for the topic with it."""
    short = cut(failure.error_message, 200)
    return (
        failure,
        Failure(failure.error_class, short, "", failure.failed_at),
        Failure(failure.error_class, "", "", failure.failed_at),
    )


def read_dead_letter_summary(record: Record) -> DeadLetterSummary | None:
    """The dead letter that a record is; `None` where it is none of ours, but another producer's."""
    found = _text_headers(record)
    if any(name not in found for name in _NEEDED):
        return None
    try:
        place = (require_number(found, "origin_partition"), require_number(found, "origin_offset"), found["handler"])
    except ValueError:
        return None
    if place[0] >= PARTITIONS or place[1] >= OFFSETS:
        return None
    failed_at = read_number(found, "failed_at") / 1000
    topic_id, timestamp = found.get("origin_topic_id", ""), found.get("origin_timestamp", "")
    which = (read_number(found, "attempts_replayed"), found.get("replay_again", ""))
    return DeadLetterSummary(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        topic=found["origin_topic"],
        whose=DeadLetterKey(*place, topic_id, "" if topic_id else timestamp, *which),
        group=found["bridge_group"],
        runs=read_number(found, "attempts"),
        attempts=read_attempt_headers(found) if "attempts_failed" in found else None,
        reason=found.get("reason", ""),
        error=f"{found.get('error_class', '')}: {found.get('error_message', '')}".rstrip(": "),
        failed_at=failed_at if is_time(failed_at) else 0.0,
    )


def _text_headers(record: Record) -> dict[str, str]:
    """As text; a header that another client wrote may be none that Python's can read."""
    try:
        found: Any = dict(headers_of(record))
    except Exception:
        return {}
    return {name: (value or b"").decode("utf-8", "replace") for name, value in found.items()}


def _timestamp_text(timestamp: int | None) -> str:
    """A record's timestamp as dead letters have it."""
    return "" if timestamp is None else str(timestamp)


#: Our headers on a dead letter; what else stands there is the producer's.
DEAD_LETTER_HEADERS: Final = frozenset(
    {
        *("origin_topic", "origin_partition", "origin_offset", "origin_timestamp", "origin_topic_id"),
        *("handler", "bridge_group", "delivery_number", "handlers_version", "replay_again"),
        *("attempts", "attempts_failed", "attempts_lost", "attempts_postponed", "attempts_replayed"),
        *("reason", "error_class", "error_message", "error_traceback", "first_failed_at", "failed_at"),
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead letter of ours.

    Attributes:
        place: where the letter lies, `orders.dlq-3-17`.
        origin: whose delivery it was, and where its message first lay.
        timestamp: of the message there, ms since the epoch; `None` where it had none.
        key, value: byte for byte as produced.
        theirs: the producer's own headers, in order.
        number: how often the delivery had been parked or replayed; what is sent back has a higher one.
        runs: how often the handler ran, or was to run.
        attempts: what became of that since it was last sent back; none are told by letters of older versions.
        reason: why it died, a word of `tasks.policy.retry_policy.REASONS`.
        error_class, error_message, error_traceback: the last failure, cut as bridge.formats.failure says.
        first_failed_at, failed_at: Unix time; 0.0 where the letter does not say.
        version: of the handlers' code that failed; empty where that is not known.
        again: by what it had been asked to run though it was done; empty: it was not.
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

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`: the delivery's."""
        return self.origin.identity


def read_dead_letter(record: Record) -> DeadLetterRecord | None:
    """The dead letter that a record is; `None` where it is none of ours, but another producer's."""
    try:
        found: Any = headers_of(record)
        theirs, ours = split_block(found, DEAD_LETTER_HEADERS)
        origin = _origin(ours)
        return None if origin is None else _make_record(record, origin, theirs, ours)
    except Exception:
        # Another client's, which Python's cannot read; or a number that is none.
        return None


def _origin(ours: dict[str, str]) -> Origin | None:
    topic, handler, group = ours.get("origin_topic"), ours.get("handler"), ours.get("bridge_group")
    partition, offset = require_number(ours, "origin_partition"), require_number(ours, "origin_offset")
    if not topic or not handler or not group or partition >= PARTITIONS or offset >= OFFSETS:
        return None
    return Origin(topic, ours.get("origin_topic_id", ""), partition, offset, handler, group)


def _make_record(record: Record, origin: Origin, theirs: Headers, ours: dict[str, str]) -> DeadLetterRecord:
    runs = read_number(ours, "attempts")
    return DeadLetterRecord(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        origin=origin,
        timestamp=read_number(ours, "origin_timestamp") if ours.get("origin_timestamp") else None,
        key=record.key(),
        value=record.value(),
        theirs=theirs,
        # An older version does not say it: it was hardly parked more often than it ran.
        number=read_number(ours, "delivery_number") if "delivery_number" in ours else runs,
        runs=runs,
        attempts=read_attempt_headers(ours),
        reason=ours.get("reason", ""),
        error_class=ours.get("error_class", ""),
        error_message=ours.get("error_message", ""),
        error_traceback=ours.get("error_traceback", ""),
        first_failed_at=read_number(ours, "first_failed_at") / 1000,
        failed_at=read_number(ours, "failed_at") / 1000,
        version=ours.get("handlers_version", ""),
        again=ours.get("replay_again", ""),
    )
