"""A record of a retry or replay topic, which holds a delivery for one handler: its headers, written and read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.formats import record_headers as header
from bridge.formats.attempt_history import read_history, write_history
from bridge.formats.dead_letter_record import read_attempt_headers, write_attempt_headers
from bridge.formats.delivery import ERROR_LENGTH, Delivery, Header, Message, Via
from bridge.formats.delivery_identity import OFFSETS, PARTITIONS, Origin, batch_id, make_log_identity, work_of
from bridge.formats.failure import Failure, cut
from bridge.formats.record_headers import RecordHeaders, append_block, read_number, require_number, split_block
from bridge.kafka.clients import Record, headers_of

#: Maximum length of a parked record's `error_message`, in characters; the dead letter has its own.
MAX_RETRY_MESSAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RetryRecord:
    """The contents of a record of a retry or replay topic.

    Attributes:
        delivery: as it will run, with `via` set, and `due` if that is later than the record's.
        group: the consumer group of the delivery.
        topic_id: of the source topic's log.
        due: ms since the epoch before which it must not run; 0 for what may run at once.
        failed_at: ms since the epoch.
    """

    delivery: Delivery
    group: str
    topic_id: str
    due: int
    failed_at: int


class RetryRecordPosition(NamedTuple):
    """The position of a record of a retry topic.

    Attributes:
        passed: whether the group has committed it: it is not read again, unless its delivery is stuck.
    """

    topic: str
    partition: int
    offset: int
    passed: bool


def retry_headers(
    delivery: Delivery, group: str, *, due: int = 0, until: int | None = None, failure: Failure | None = None
) -> RecordHeaders:
    """Return the headers of a parked or replayed record: the producer's, then ours.

    Parameters:
        delivery: with its new number.
        due: ms since the epoch before which it must not run; 0: at once (a replay).
        until: the same for a wait longer than the topic's delay: the delivery is parked again then, without a run.
        failure: the last one; if it is unknown, the delivery's error is used.
    """
    message = delivery.message
    error_class, _, error_message = delivery.error.partition(": ")
    ours = {
        header.ORIGIN_TOPIC: message.topic,
        header.ORIGIN_PARTITION: str(message.partition),
        header.ORIGIN_OFFSET: str(message.offset),
        header.ORIGIN_TIMESTAMP: "" if message.timestamp is None else str(message.timestamp),
        header.ORIGIN_TOPIC_ID: delivery.topic_id,
        header.HANDLER: delivery.handler,
        header.BRIDGE_GROUP: group,
        header.DELIVERY_NUMBER: str(delivery.number),
        header.RETRY_NUMBER: str(delivery.runs),
        header.RETRY_TIMESTAMP: str(due) if due else "",
        header.RETRY_UNTIL: "" if until is None else str(until),
        header.RETRY_AFTER: "" if delivery.after is None else str(delivery.after),
        header.REPLAY_AGAIN: delivery.again,
        header.REPLAY_ONCE: "1" if delivery.once else "",
        **write_attempt_headers(delivery),
        header.ERROR_CLASS: failure.error_class if failure else error_class,
        header.ERROR_MESSAGE: cut(failure.error_message if failure else error_message, MAX_RETRY_MESSAGE),
        header.FIRST_FAILED_AT: str(delivery.first_failed_at or ""),
        header.FAILED_AT: str(failure.failed_at) if failure else "",
        header.TRACE: delivery.trace,
        header.ATTEMPT_HISTORY: write_history(delivery.history),
    }
    return append_block(message.headers, {name: value for name, value in ours.items() if value})


def read_retry_record(record: Record, cluster: str, topic_id: str) -> RetryRecord | None:
    """Return the contents of a record of a retry or replay topic; `None` if the record is none of ours.

    Parameters:
        cluster: of the Kafka that it was read from.
        topic_id: of the retry or replay topic's log.
    """
    try:
        found: Sequence[Header] = headers_of(record)
        via = Via(str(record.topic()), int(record.partition() or 0), int(record.offset() or 0), topic_id)
        return _parse_retry_record(found, record.key(), record.value(), via, cluster)
    except Exception:
        # Another client wrote headers that Python's cannot read, or text where a number belongs.
        return None


def read_retry_origin(record: Record) -> Origin | None:
    """Return only the origin of a record of a retry or replay topic: cheaper than `read_retry_record` for a million of
    them.
    """
    try:
        found: Any = dict(headers_of(record))
        topic, handler, group = (
            found[name].decode("ascii") for name in (header.ORIGIN_TOPIC, header.HANDLER, header.BRIDGE_GROUP)
        )
        place = (int(found[header.ORIGIN_PARTITION]), int(found[header.ORIGIN_OFFSET]))
        if not (0 <= place[0] < PARTITIONS and 0 <= place[1] < OFFSETS):
            return None
        return Origin(topic, (found.get(header.ORIGIN_TOPIC_ID) or b"").decode("ascii"), *place, handler, group)
    except Exception:
        # Another client wrote headers that Python's cannot read, or none of ours.
        return None


def read_retry_key(record: Record) -> tuple[str, str, int] | None:
    """Return the work, group and number of the delivery in a record, to recognise it."""
    held = read_retry_record(record, "", "")
    return None if held is None else (held.delivery.work, held.group, held.delivery.number)


def _parse_retry_record(found: Sequence[Header], key: Any, value: Any, via: Via, cluster: str) -> RetryRecord | None:
    theirs, ours = split_block(found, header.RETRY_HEADERS)
    topic, handler, group = ours.get(header.ORIGIN_TOPIC), ours.get(header.HANDLER), ours.get(header.BRIDGE_GROUP)
    if not topic or not handler or not group:
        return None
    partition, offset = require_number(ours, header.ORIGIN_PARTITION), require_number(ours, header.ORIGIN_OFFSET)
    if partition >= PARTITIONS or offset >= OFFSETS:
        return None
    source_id, attempts, runs = (
        ours.get(header.ORIGIN_TOPIC_ID, ""),
        read_attempt_headers(ours),
        read_number(ours, header.ATTEMPTS),
    )
    message = Message(
        topic,
        partition,
        offset,
        key,
        value,
        theirs,
        read_number(ours, header.ORIGIN_TIMESTAMP) if header.ORIGIN_TIMESTAMP in ours else None,
        runs + 1,
        attempts,
        work_of(batch_id(topic, partition, (offset,), handler), ours.get(header.REPLAY_AGAIN, "")),
        make_log_identity(cluster, group, source_id),
    )
    due, until = read_number(ours, header.RETRY_TIMESTAMP), read_number(ours, header.RETRY_UNTIL)
    delivery = Delivery(
        message,
        handler,
        number=read_number(ours, header.DELIVERY_NUMBER),
        runs=runs,
        attempts=attempts,
        first_failed_at=read_number(ours, header.FIRST_FAILED_AT) or None,
        error=_error(ours.get(header.ERROR_CLASS, ""), ours.get(header.ERROR_MESSAGE, "")),
        due=until / 1000 if until > due else None,
        via=via,
        after=read_number(ours, header.RETRY_AFTER) if header.RETRY_AFTER in ours else None,
        again=ours.get(header.REPLAY_AGAIN, ""),
        once=header.REPLAY_ONCE in ours,
        trace=ours.get(header.TRACE, ""),
        history=read_history(ours.get(header.ATTEMPT_HISTORY, "")),
    )
    return RetryRecord(delivery, group, source_id, due, read_number(ours, header.FAILED_AT))


def _error(error_class: str, error_message: str) -> str:
    return cut(f"{error_class}: {error_message}" if error_message else error_class, ERROR_LENGTH)
