"""The parser of records from dead-letter topics, written by this bridge or by other programs.

It raises nothing: unreadable parts are kept as bytes.
"""

from typing import Any, Final

from bridge.deadletters.model.failure_group import compute_cause_fingerprint, find_failure_group
from bridge.deadletters.model.stored_letter import LetterIdentity, LetterKind, StoredLetter
from bridge.formats import foreign_dead_letter
from bridge.formats.dead_letter_record import DeadLetterRecord as Ours
from bridge.formats.dead_letter_record import read_dead_letter
from bridge.formats.delivery import Attempts, Headers
from bridge.formats.delivery_identity import OFFSETS, PARTITIONS
from bridge.formats.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, cut
from bridge.kafka.clients import Record, headers_of

#: The origin of letters that this project wrote.
OURS: Final = "bridge"
#: Most characters of the name of a handler, a group, a version or a reason.
LONGEST_NAME: Final = 300
#: The largest count in the database.
HIGHEST: Final = 2**31 - 1
#: How far in the future a time may be (clock-skew limit), in ms: a day.
AHEAD: Final = 86_400_000

UNREADABLE: Final = (
    "The headers of this record cannot be read by Kafka's client for Python (a header's name must be UTF-8): key and "
    "value are kept, the headers are not."
)


def parse_letter(record: Record, topic_id: str, now: int) -> StoredLetter:
    """Return the letter of a record of a dead-letter topic. Raises nothing: unreadable parts are kept as bytes.

    Parameters:
        topic_id: the id of the dead-letter topic.
        now: ms since the epoch.
    """
    try:
        headers: Headers = tuple(headers_of(record))
    except Exception:
        return _parse_foreign_letter(
            record,
            foreign_dead_letter.ForeignDeadLetter(foreign_dead_letter.UNKNOWN, error_message=UNREADABLE),
            topic_id,
            now,
        )
    ours = read_dead_letter(record)
    return (
        _parse_foreign_letter(record, foreign_dead_letter.read_foreign_dead_letter(headers), topic_id, now)
        if ours is None
        else _parse_own_letter(record, ours, now)
    )


def _parse_own_letter(record: Record, found: Ours, now: int) -> StoredLetter:
    failed_at = _plausible_time(int(found.failed_at * 1000), record, now)
    return _build_letter(
        record,
        LetterIdentity(
            found.origin.group,
            found.origin.topic,
            _storable_name(found.origin.topic_id),
            found.origin.partition,
            found.origin.offset,
            found.origin.handler,
        ),
        OURS,
        found,
        headers=found.theirs,
        timestamp=None if found.timestamp is None else min(found.timestamp, OFFSETS - 1),
        version=found.version,
        number=min(found.number, HIGHEST),
        runs=min(found.runs, HIGHEST),
        attempts=Attempts(*(min(count, HIGHEST) for count in found.attempts)),
        first_failed_at=min(_plausible_time(int(found.first_failed_at * 1000), record, now), failed_at),
        failed_at=failed_at,
        again=_storable_name(found.again),
        trace=_storable_name(found.trace),
        history=found.history,
    )


def _parse_foreign_letter(
    record: Record, found: foreign_dead_letter.ForeignDeadLetter, topic_id: str, now: int
) -> StoredLetter:
    topic, partition, offset = str(record.topic()), record.partition() or 0, record.offset() or 0
    identity = LetterIdentity(found.group, topic, topic_id, partition, offset, "")
    if found.topic and found.offset is not None and found.partition is not None and found.partition < PARTITIONS:
        identity = LetterIdentity(found.group, found.topic, "", found.partition, found.offset, "")
    failed_at = _plausible_time(found.failed_at or 0, record, now)
    return _build_letter(
        record,
        identity,
        found.origin,
        found,
        headers=found.theirs,
        timestamp=found.timestamp,
        version="",
        number=0,
        runs=min(found.attempts, HIGHEST),
        attempts=Attempts(),
        first_failed_at=failed_at,
        failed_at=failed_at,
    )


def _build_letter(record: Record, identity: LetterIdentity, origin: str, found: Any, **other: Any) -> StoredLetter:
    """Return a letter with the fields that this project's and other programs' records share."""
    traceback = make_storable(found.error_traceback, MAX_TRACEBACK)
    message = make_storable(found.error_message, MAX_MESSAGE)
    handler, error_class = _storable_name(identity.handler), make_storable(found.error_class, MAX_CLASS)
    group = find_failure_group(handler, error_class, traceback, message)
    return StoredLetter(
        identity=identity,
        kind=LetterKind(
            group=group,
            topic=_storable_name(identity.topic),
            origin=origin,
            consumer_group=_storable_name(identity.consumer_group),
            reason=_storable_name(found.reason),
            version=_storable_name(other.pop("version")),
            cause=compute_cause_fingerprint(group, traceback, message),
        ),
        key=record.key(),
        value=record.value(),
        error_message=message,
        traceback=traceback,
        topic=str(record.topic()),
        partition=record.partition() or 0,
        offset=record.offset() or 0,
        **other,
    )


def make_storable(text: str, longest: int) -> str:
    """Return a text that both databases can store: without null characters and half surrogate pairs, and not too
    long.
    """
    text = cut(text, longest)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _storable_name(text: str) -> str:
    return make_storable(text, LONGEST_NAME)


def _plausible_time(at: int, record: Record, now: int) -> int:
    """Return a letter's time in ms if it is plausible; else the record's timestamp, else now."""
    kind, written = record.timestamp()
    return next((each for each in (at, written if kind else 0) if 0 < each <= now + AHEAD), now)
