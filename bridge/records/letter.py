"""A dead letter in full, for whoever keeps it, shows it or sends it back: all that its record on Kafka says.

Who looks at many and asks only how deliveries died reads less (`bridge.records.dead_letter.read`).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from bridge.kafka import Record, headers_of
from bridge.records.added import apart, needed, number
from bridge.records.attempts import Attempts
from bridge.records.dead_letter import attempts_read
from bridge.records.message import Headers
from bridge.records.origin import OFFSETS, PARTITIONS, Origin

#: Our headers on a dead letter; what else stands there is the producer's.
NAMES: Final = frozenset(
    {
        *("origin_topic", "origin_partition", "origin_offset", "origin_timestamp", "origin_topic_id"),
        *("handler", "bridge_group", "delivery_number", "handlers_version", "replay_again"),
        *("attempts", "attempts_failed", "attempts_lost", "attempts_postponed", "attempts_replayed"),
        *("reason", "error_class", "error_message", "error_traceback", "first_failed_at", "failed_at"),
    }
)


@dataclass(frozen=True, slots=True)
class Letter:
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
        reason: why it died, a word of `tasks.policy.REASONS`.
        error_class, error_message, error_traceback: the last failure, cut as bridge.records.failure says.
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


def letter(record: Record) -> Letter | None:
    """The dead letter that a record is; `None` where it is none of ours, but another producer's."""
    try:
        found: Any = headers_of(record)
        theirs, ours = apart(found, NAMES)
        origin = _origin(ours)
        return None if origin is None else _letter(record, origin, theirs, ours)
    except Exception:
        # Another client's, which Python's cannot read; or a number that is none.
        return None


def _origin(ours: dict[str, str]) -> Origin | None:
    topic, handler, group = ours.get("origin_topic"), ours.get("handler"), ours.get("bridge_group")
    partition, offset = needed(ours, "origin_partition"), needed(ours, "origin_offset")
    if not topic or not handler or not group or partition >= PARTITIONS or offset >= OFFSETS:
        return None
    return Origin(topic, ours.get("origin_topic_id", ""), partition, offset, handler, group)


def _letter(record: Record, origin: Origin, theirs: Headers, ours: dict[str, str]) -> Letter:
    runs = number(ours, "attempts")
    return Letter(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        origin=origin,
        timestamp=number(ours, "origin_timestamp") if ours.get("origin_timestamp") else None,
        key=record.key(),
        value=record.value(),
        theirs=theirs,
        # An older version does not say it: it was hardly parked more often than it ran.
        number=number(ours, "delivery_number") if "delivery_number" in ours else runs,
        runs=runs,
        attempts=attempts_read(ours),
        reason=ours.get("reason", ""),
        error_class=ours.get("error_class", ""),
        error_message=ours.get("error_message", ""),
        error_traceback=ours.get("error_traceback", ""),
        first_failed_at=number(ours, "first_failed_at") / 1000,
        failed_at=number(ours, "failed_at") / 1000,
        version=ours.get("handlers_version", ""),
        again=ours.get("replay_again", ""),
    )
