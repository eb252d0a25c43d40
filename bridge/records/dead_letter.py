"""A dead letter on Kafka: its headers, written and read side by side.

Key, value and the producer's own headers travel byte for byte; ours stand behind the producer's, as ASCII text, and of
a name that occurs twice the last counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.kafka import Record, headers_of
from bridge.records.added import RecordHeaders, added, needed, number
from bridge.records.attempts import Attempts
from bridge.records.failure import Failure, cut
from bridge.records.message import Dead, Delivery
from bridge.records.origin import OFFSETS, PARTITIONS
from bridge.records.untrusted_json import is_time

#: Without these a record is no dead letter of ours.
_NEEDED: Final = ("origin_topic", "origin_partition", "origin_offset", "handler", "bridge_group")
_ATTEMPTS: Final = tuple(f"attempts_{name}" for name in Attempts._fields)


class Whose(NamedTuple):
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
    def those_of(cls, delivery: Delivery) -> "tuple[Whose, Whose]":
        """What a dead letter of this delivery may say, of this version and of an older one."""
        message = delivery.message
        place = (message.partition, message.offset, delivery.handler)
        which = (delivery.attempts.replayed, delivery.again)
        return cls(*place, delivery.topic_id, "", *which), cls(*place, "", _text(message.timestamp), *which)

    def is_of(self, topic_id: str) -> bool:
        """Whether it may be of the log with this id."""
        return self.topic_id in ("", topic_id)


@dataclass(frozen=True, slots=True)
class DeadLetter:
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
    whose: Whose
    group: str
    runs: int
    attempts: Attempts | None
    reason: str
    error: str
    failed_at: float


def headers(delivery: Delivery, dead: Dead, group: str) -> RecordHeaders:
    """The producer's headers, and behind them ours."""
    failure = dead.failure
    ours = {
        "origin_topic": delivery.message.topic,
        "origin_partition": str(delivery.message.partition),
        "origin_offset": str(delivery.message.offset),
        "origin_timestamp": _text(delivery.message.timestamp),
        "origin_topic_id": delivery.topic_id,
        "handler": delivery.handler,
        "bridge_group": group,
        "delivery_number": str(delivery.number),
        **({"replay_again": delivery.again} if delivery.again else {}),
        **attempts_said(delivery),
        **({"handlers_version": dead.version} if dead.version else {}),
        "reason": dead.reason,
        "error_class": failure.error_class,
        "error_message": failure.error_message,
        "error_traceback": failure.error_traceback,
        "first_failed_at": str(delivery.first_failed_at or failure.failed_at),
        "failed_at": str(failure.failed_at),
    }
    return added(delivery.message.headers, ours)


def attempts_said(delivery: Delivery) -> dict[str, str]:
    """How often it ran, and what became of that, as headers."""
    said = zip(_ATTEMPTS, map(str, delivery.attempts), strict=True)
    return {"attempts": str(delivery.runs), **dict(said)}


def attempts_read(found: Mapping[str, str]) -> Attempts:
    """What `attempts_said` wrote."""
    return Attempts(*[number(found, name) for name in _ATTEMPTS])


def shorter_and_shorter(failure: Failure) -> tuple[Failure, ...]:
    """What is said of a failure, and what is said where the record is too large for the topic with it."""
    short = cut(failure.error_message, 200)
    return (
        failure,
        Failure(failure.error_class, short, "", failure.failed_at),
        Failure(failure.error_class, "", "", failure.failed_at),
    )


def read(record: Record) -> DeadLetter | None:
    """The dead letter that a record is; `None` where it is none of ours, but another producer's."""
    found = _headers(record)
    if any(name not in found for name in _NEEDED):
        return None
    try:
        place = (needed(found, "origin_partition"), needed(found, "origin_offset"), found["handler"])
    except ValueError:
        return None
    if place[0] >= PARTITIONS or place[1] >= OFFSETS:
        return None
    failed_at = number(found, "failed_at") / 1000
    topic_id, timestamp = found.get("origin_topic_id", ""), found.get("origin_timestamp", "")
    which = (number(found, "attempts_replayed"), found.get("replay_again", ""))
    return DeadLetter(
        place=f"{record.topic()}-{record.partition()}-{record.offset()}",
        topic=found["origin_topic"],
        whose=Whose(*place, topic_id, "" if topic_id else timestamp, *which),
        group=found["bridge_group"],
        runs=number(found, "attempts"),
        attempts=attempts_read(found) if "attempts_failed" in found else None,
        reason=found.get("reason", ""),
        error=f"{found.get('error_class', '')}: {found.get('error_message', '')}".rstrip(": "),
        failed_at=failed_at if is_time(failed_at) else 0.0,
    )


def _headers(record: Record) -> dict[str, str]:
    """As text; a header that another client wrote may be none that Python's can read."""
    try:
        found: Any = dict(headers_of(record))
    except Exception:
        return {}
    return {name: (value or b"").decode("utf-8", "replace") for name, value in found.items()}


def _text(timestamp: int | None) -> str:
    """A record's timestamp as dead letters have it."""
    return "" if timestamp is None else str(timestamp)
