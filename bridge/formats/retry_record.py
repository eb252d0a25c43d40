"""A record of a retry or replay topic: its headers, written and read side by side; the delivery that it holds is of
the one handler that it names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.formats.dead_letter_record import read_attempt_headers, write_attempt_headers
from bridge.formats.delivery import ERROR_LENGTH, NO_ATTEMPTS, Attempts, Delivery, Header, Message, Via
from bridge.formats.delivery_identity import OFFSETS, PARTITIONS, Origin, batch_id, make_log_identity, work_of
from bridge.formats.failure import Failure, cut
from bridge.formats.header_block import RecordHeaders, append_block, read_number, require_number, split_block
from bridge.kafka.clients import Record, headers_of

#: Longest `error_message` of a record that waits, in characters; its dead letter will have one of its own.
MAX_RETRY_MESSAGE: Final = 500
_RETRY_HEADERS: Final = frozenset(
    {
        *("origin_topic", "origin_partition", "origin_offset", "origin_timestamp", "origin_topic_id"),
        *(
            "handler",
            "bridge_group",
            "delivery_number",
            "retry_number",
            "retry_timestamp",
            "retry_until",
            "retry_after",
            "replay_again",
            "replay_once",
        ),
        *("attempts", "attempts_failed", "attempts_lost", "attempts_postponed", "attempts_replayed"),
        *("error_class", "error_message", "first_failed_at", "failed_at"),
    }
)


@dataclass(frozen=True, slots=True)
class RetryRecord:
    """What a record of a retry or replay topic holds.

    Attributes:
        delivery: as it will run, with `via` where the record lies, and `due` where that is later than the record's.
        group: the consumer group whose delivery it is.
        topic_id: of the origin's log.
        due: ms since the epoch before which it must not run; 0 for what may run at once.
        failed_at: ms since the epoch.
    """

    delivery: Delivery
    group: str
    topic_id: str
    due: int
    failed_at: int


class RetryRecordPosition(NamedTuple):
    """A record of a retry topic.

    Attributes:
        passed: whether the group has committed it: it is not read again, unless what it holds is stuck.
    """

    topic: str
    partition: int
    offset: int
    passed: bool


def retry_headers(
    delivery: Delivery, group: str, *, due: int = 0, until: int | None = None, failure: Failure | None = None
) -> RecordHeaders:
    """The producer's headers, and behind them ours.

    Parameters:
        delivery: with the number that it has from now on.
        due: ms since the epoch before which it must not run; 0: at once (a replay).
        until: the same, where the wait is longer than the topic's: it is parked again then, without running.
        failure: the last one; where it is not known, what the delivery says of it.
    """
    message = delivery.message
    error_class, _, error_message = delivery.error.partition(": ")
    ours = {
        "origin_topic": message.topic,
        "origin_partition": str(message.partition),
        "origin_offset": str(message.offset),
        "origin_timestamp": "" if message.timestamp is None else str(message.timestamp),
        "origin_topic_id": delivery.topic_id,
        "handler": delivery.handler,
        "bridge_group": group,
        "delivery_number": str(delivery.number),
        "retry_number": str(delivery.runs),
        "retry_timestamp": str(due) if due else "",
        "retry_until": "" if until is None else str(until),
        "retry_after": "" if delivery.after is None else str(delivery.after),
        "replay_again": delivery.again,
        "replay_once": "1" if delivery.once else "",
        **write_attempt_headers(delivery),
        "error_class": failure.error_class if failure else error_class,
        "error_message": cut(failure.error_message if failure else error_message, MAX_RETRY_MESSAGE),
        "first_failed_at": str(delivery.first_failed_at or ""),
        "failed_at": str(failure.failed_at) if failure else "",
    }
    return append_block(message.headers, {name: value for name, value in ours.items() if value})


def read_retry_record(record: Record, cluster: str, topic_id: str) -> RetryRecord | None:
    """What a record of a retry or replay topic holds; `None` where it is none of ours.

    Parameters:
        cluster: of the Kafka that it was read from.
        topic_id: of the retry or replay topic's log.
    """
    try:
        found: Sequence[Header] = headers_of(record)
        via = Via(str(record.topic()), int(record.partition() or 0), int(record.offset() or 0), topic_id)
        return _parse_retry_record(found, record.key(), record.value(), via, cluster)
    except Exception:
        # Another client's, which Python's cannot read; or a number that is none.
        return None


def read_retry_origin(record: Record) -> Origin | None:
    """Whose a record of a retry or replay topic is: less than `read`, for whoever looks at a million of them."""
    try:
        found: Any = dict(headers_of(record))
        topic, handler, group = (found[name].decode("ascii") for name in ("origin_topic", "handler", "bridge_group"))
        place = (int(found["origin_partition"]), int(found["origin_offset"]))
        if not (0 <= place[0] < PARTITIONS and 0 <= place[1] < OFFSETS):
            return None
        return Origin(topic, (found.get("origin_topic_id") or b"").decode("ascii"), *place, handler, group)
    except Exception:
        # Another client's, which Python's cannot read; or one that lacks what ours have.
        return None


def read_retry_key(record: Record) -> tuple[str, str, int] | None:
    """The work, group and number of the delivery that a record holds, for whoever looks whether it is there."""
    held = read_retry_record(record, "", "")
    return None if held is None else (held.delivery.work, held.group, held.delivery.number)


def _parse_retry_record(found: Sequence[Header], key: Any, value: Any, via: Via, cluster: str) -> RetryRecord | None:
    theirs, ours = split_block(found, _RETRY_HEADERS)
    topic, handler, group = ours.get("origin_topic"), ours.get("handler"), ours.get("bridge_group")
    if not topic or not handler or not group:
        return None
    partition, offset = require_number(ours, "origin_partition"), require_number(ours, "origin_offset")
    if partition >= PARTITIONS or offset >= OFFSETS:
        return None
    source_id, attempts, runs = (
        ours.get("origin_topic_id", ""),
        read_attempt_headers(ours),
        read_number(ours, "attempts"),
    )
    message = Message(
        topic,
        partition,
        offset,
        key,
        value,
        theirs,
        read_number(ours, "origin_timestamp") if "origin_timestamp" in ours else None,
        runs + 1,
        attempts,
        work_of(batch_id(topic, partition, (offset,), handler), ours.get("replay_again", "")),
        make_log_identity(cluster, group, source_id),
    )
    due, until = read_number(ours, "retry_timestamp"), read_number(ours, "retry_until")
    delivery = Delivery(
        message,
        handler,
        number=read_number(ours, "delivery_number"),
        runs=runs,
        attempts=attempts,
        first_failed_at=read_number(ours, "first_failed_at") or None,
        error=_error(ours.get("error_class", ""), ours.get("error_message", "")),
        due=until / 1000 if until > due else None,
        via=via,
        after=read_number(ours, "retry_after") if "retry_after" in ours else None,
        again=ours.get("replay_again", ""),
        once="replay_once" in ours,
    )
    return RetryRecord(delivery, group, source_id, due, read_number(ours, "failed_at"))


def _error(error_class: str, error_message: str) -> str:
    return cut(f"{error_class}: {error_message}" if error_message else error_class, ERROR_LENGTH)


def replay_headers(
    origin: Origin,
    theirs: Sequence[Header],
    *,
    timestamp: int | None,
    number: int = 0,
    runs: int = 0,
    attempts: Attempts = NO_ATTEMPTS,
    again: str = "",
    once: bool = False,
) -> RecordHeaders:
    """The headers of a delivery that is sent back: the producer's, and behind them ours.

    It begins anew: it has all its retries, its whole `give_up_after`, and no lost process counts against it. What it
    keeps is how often it ran, and how often it was sent back, now once more.

    Parameters:
        theirs: the producer's own headers, in order.
        timestamp: of the message where it first lay, ms since the epoch.
        number, runs, attempts: as its last dead letter says (`Letter`); of what never died, the defaults.
        again: by what it is asked to run though its origin is done, ASCII, another one each time that it is asked (the
            name of a plan); its work is done once for each. Empty: it runs only if it is not done.
        once: it has one attempt instead of all its retries; this time only, also where it goes on along a `sequence`.
    """
    message = Message(
        origin.topic,
        origin.partition,
        origin.offset,
        headers=tuple(theirs),
        timestamp=timestamp,
        origin=f"  {origin.topic_id}",
    )
    back = Attempts(replayed=attempts.replayed + 1)
    delivery = Delivery(message, origin.handler, number=number + 1, runs=runs, attempts=back, again=again, once=once)
    return retry_headers(delivery, origin.group)
