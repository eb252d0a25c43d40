"""The Kafka headers that the bridge adds to a record: their names, and the block of them behind the producer's (pure).

The headers of the block are ASCII text; its first is `origin_topic`, always and once. docs/reference/headers.md says
what each header holds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from bridge.formats.delivery import Header

RecordHeaders = list[tuple[str, str | bytes | None]]

#: The kinds of records that carry our headers: dead letters, and records of a retry or replay topic.
_DEAD_LETTER: Final = "dead letter"
_RETRY: Final = "retry record"
_BOTH: Final = (_DEAD_LETTER, _RETRY)
_kinds_by_name: dict[str, tuple[str, ...]] = {}


def _declare(name: str, *kinds: str) -> str:
    """Return the name of a header, and note on which records it travels."""
    _kinds_by_name[name] = kinds
    return name


ORIGIN_TOPIC: Final = _declare("origin_topic", *_BOTH)
ORIGIN_PARTITION: Final = _declare("origin_partition", *_BOTH)
ORIGIN_OFFSET: Final = _declare("origin_offset", *_BOTH)
ORIGIN_TIMESTAMP: Final = _declare("origin_timestamp", *_BOTH)
ORIGIN_TOPIC_ID: Final = _declare("origin_topic_id", *_BOTH)
HANDLER: Final = _declare("handler", *_BOTH)
BRIDGE_GROUP: Final = _declare("bridge_group", *_BOTH)
DELIVERY_NUMBER: Final = _declare("delivery_number", *_BOTH)
REPLAY_AGAIN: Final = _declare("replay_again", *_BOTH)
REPLAY_ONCE: Final = _declare("replay_once", _RETRY)
ATTEMPTS: Final = _declare("attempts", *_BOTH)
ATTEMPTS_FAILED: Final = _declare("attempts_failed", *_BOTH)
ATTEMPTS_LOST: Final = _declare("attempts_lost", *_BOTH)
ATTEMPTS_POSTPONED: Final = _declare("attempts_postponed", *_BOTH)
ATTEMPTS_REPLAYED: Final = _declare("attempts_replayed", *_BOTH)
HANDLERS_VERSION: Final = _declare("handlers_version", _DEAD_LETTER)
REASON: Final = _declare("reason", _DEAD_LETTER)
ERROR_CLASS: Final = _declare("error_class", *_BOTH)
ERROR_MESSAGE: Final = _declare("error_message", *_BOTH)
ERROR_TRACEBACK: Final = _declare("error_traceback", _DEAD_LETTER)
FIRST_FAILED_AT: Final = _declare("first_failed_at", *_BOTH)
FAILED_AT: Final = _declare("failed_at", *_BOTH)
TRACE: Final = _declare("delivery_trace", *_BOTH)
ATTEMPT_HISTORY: Final = _declare("attempt_history", *_BOTH)
RETRY_NUMBER: Final = _declare("retry_number", _RETRY)
RETRY_TIMESTAMP: Final = _declare("retry_timestamp", _RETRY)
RETRY_UNTIL: Final = _declare("retry_until", _RETRY)
RETRY_AFTER: Final = _declare("retry_after", _RETRY)

#: In the order of the fields of `Attempts`.
ATTEMPTS_BY_END: Final = (ATTEMPTS_FAILED, ATTEMPTS_LOST, ATTEMPTS_POSTPONED, ATTEMPTS_REPLAYED)
#: Our headers on a dead letter; all others are the producer's.
DEAD_LETTER_HEADERS: Final = frozenset(name for name, kinds in _kinds_by_name.items() if _DEAD_LETTER in kinds)
#: Our headers on a record of a retry or replay topic.
RETRY_HEADERS: Final = frozenset(name for name, kinds in _kinds_by_name.items() if _RETRY in kinds)

#: Maximum number of digits: Kafka's offsets and times in milliseconds have at most 19.
_DIGITS: Final = 19


def append_block(theirs: Sequence[Header], ours: Mapping[str, str]) -> RecordHeaders:
    """Return the producer's headers byte for byte, followed by ours, of which the first is `origin_topic`."""
    return [*theirs, *[(name, value.encode("ascii", "backslashreplace")) for name, value in ours.items()]]


def split_block(headers: Sequence[Header], names: Collection[str]) -> tuple[tuple[Header, ...], dict[str, str]]:
    """Return the producer's headers, and ours as text; the last of a repeated name counts.

    Parameters:
        names: the names of our headers.
    """
    begin = next((at for at in range(len(headers) - 1, -1, -1) if headers[at][0] == ORIGIN_TOPIC), len(headers))
    behind = headers[begin:]
    ours = {name: (value or b"").decode("utf-8", "replace") for name, value in behind if name in names}
    return (*headers[:begin], *(header for header in behind if header[0] not in names)), ours


def read_number(headers: Mapping[str, Any], name: str) -> int:
    """Return a count or a time from our headers; 0 if it is missing or no number."""
    text = headers.get(name, "")
    return int(text) if _is_number(text) else 0


def require_number(headers: Mapping[str, str], name: str) -> int:
    """Return a number from our headers.

    Raises:
        ValueError: it is missing or no number.
    """
    text = headers.get(name, "")
    if not _is_number(text):
        raise ValueError(f"{name} is no number: {text[:40]!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdecimal()
