"""A record of a dead-letter topic, read: ours or somebody else's, fit for a database whatever it holds."""

from functools import lru_cache
from typing import Any, Final

from bridge.deadletters.letters.fingerprint import cause_fingerprint
from bridge.deadletters.letters.letter import Group, Identity, Kind, Letter
from bridge.deadletters.letters.place import place
from bridge.deadletters.letters.tracebacks import without_message
from bridge.kafka import Record, headers_of
from bridge.records import foreign
from bridge.records.attempts import Attempts
from bridge.records.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, cut
from bridge.records.letter import Letter as Ours
from bridge.records.letter import letter
from bridge.records.message import Headers
from bridge.records.origin import OFFSETS, PARTITIONS

#: The origin of letters that a worker of ours wrote.
OURS: Final = "bridge"
#: Longest name that is kept of a handler, a group, a version, a reason, in characters.
LONGEST_NAME: Final = 300
#: Of a count in the database.
HIGHEST: Final = 2**31 - 1
#: How far ahead of the recorder's clock another's may be, in ms: a day.
AHEAD: Final = 86_400_000

UNREADABLE: Final = (
    "The headers of this record cannot be read by Kafka's client for Python (a header's name must be UTF-8): key and "
    "value are kept, what the headers say is not."
)


def read(record: Record, topic_id: str, now: int) -> Letter:
    """The letter that a record of a dead-letter topic is. Raises nothing: what cannot be read is kept as it is.

    Parameters:
        topic_id: of the topic in which it lies.
        now: ms since the epoch.
    """
    try:
        headers: Headers = tuple(headers_of(record))
    except Exception:
        return _theirs(record, foreign.Foreign(foreign.UNKNOWN, error_message=UNREADABLE), topic_id, now)
    ours = letter(record)
    return _theirs(record, foreign.read(headers), topic_id, now) if ours is None else _ours(record, ours, now)


def _ours(record: Record, found: Ours, now: int) -> Letter:
    failed_at = _believed(int(found.failed_at * 1000), record, now)
    return _letter(
        record,
        Identity(
            found.origin.group,
            found.origin.topic,
            _name(found.origin.topic_id),
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
        first_failed_at=min(_believed(int(found.first_failed_at * 1000), record, now), failed_at),
        failed_at=failed_at,
        again=_name(found.again),
    )


def _theirs(record: Record, found: foreign.Foreign, topic_id: str, now: int) -> Letter:
    topic, partition, offset = str(record.topic()), record.partition() or 0, record.offset() or 0
    identity = Identity(found.group, topic, topic_id, partition, offset, "")
    if found.topic and found.offset is not None and found.partition is not None and found.partition < PARTITIONS:
        identity = Identity(found.group, found.topic, "", found.partition, found.offset, "")
    failed_at = _believed(found.failed_at or 0, record, now)
    return _letter(
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


@lru_cache(maxsize=256)
def _place(traceback: str, handler: str) -> str:
    """Letters of one fault have the same traceback, but for its message."""
    return storable(place(traceback, handler), LONGEST_NAME)


def _letter(record: Record, identity: Identity, origin: str, found: Any, **other: Any) -> Letter:
    """What ours and theirs say in the same words."""
    traceback = storable(found.error_traceback, MAX_TRACEBACK)
    message = storable(found.error_message, MAX_MESSAGE)
    handler, error_class = _name(identity.handler), storable(found.error_class, MAX_CLASS)
    group = Group(handler, error_class, _place(without_message(traceback, message), handler))
    return Letter(
        identity=identity,
        kind=Kind(
            group=group,
            topic=_name(identity.topic),
            origin=origin,
            consumer_group=_name(identity.consumer_group),
            reason=_name(found.reason),
            version=_name(other.pop("version")),
            cause=cause_fingerprint(group, traceback, message),
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


def storable(text: str, longest: int) -> str:
    """A text that every database takes: no null character, no half of a surrogate pair, at most so many characters."""
    text = cut(text, longest)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _name(text: str) -> str:
    return storable(text, LONGEST_NAME)


def _believed(at: int, record: Record, now: int) -> int:
    """A time in ms that a letter says, where it can be one; else when Kafka got the letter, else now."""
    kind, written = record.timestamp()
    return next((each for each in (at, written if kind else 0) if 0 < each <= now + AHEAD), now)
