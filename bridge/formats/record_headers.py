"""The Kafka headers that the bridge adds to a record: their names, and the block of them behind the producer's (pure).

The headers of the block are ASCII text; its first is `origin_topic`, always and once. docs/reference/headers.md says
what each header holds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from bridge.formats.delivery import Header

RecordHeaders = list[tuple[str, str | bytes | None]]

ORIGIN_TOPIC: Final = "origin_topic"
ORIGIN_PARTITION: Final = "origin_partition"
ORIGIN_OFFSET: Final = "origin_offset"
ORIGIN_TIMESTAMP: Final = "origin_timestamp"
ORIGIN_TOPIC_ID: Final = "origin_topic_id"
HANDLER: Final = "handler"
BRIDGE_GROUP: Final = "bridge_group"
DELIVERY_NUMBER: Final = "delivery_number"
REPLAY_AGAIN: Final = "replay_again"
REPLAY_ONCE: Final = "replay_once"
ATTEMPTS: Final = "attempts"
ATTEMPTS_FAILED: Final = "attempts_failed"
ATTEMPTS_LOST: Final = "attempts_lost"
ATTEMPTS_POSTPONED: Final = "attempts_postponed"
ATTEMPTS_REPLAYED: Final = "attempts_replayed"
HANDLERS_VERSION: Final = "handlers_version"
REASON: Final = "reason"
ERROR_CLASS: Final = "error_class"
ERROR_MESSAGE: Final = "error_message"
ERROR_TRACEBACK: Final = "error_traceback"
FIRST_FAILED_AT: Final = "first_failed_at"
FAILED_AT: Final = "failed_at"
RETRY_NUMBER: Final = "retry_number"
RETRY_TIMESTAMP: Final = "retry_timestamp"
RETRY_UNTIL: Final = "retry_until"
RETRY_AFTER: Final = "retry_after"

#: In the order of the fields of `Attempts`.
ATTEMPTS_BY_END: Final = (ATTEMPTS_FAILED, ATTEMPTS_LOST, ATTEMPTS_POSTPONED, ATTEMPTS_REPLAYED)
_COMMON: Final = (
    *(ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP, ORIGIN_TOPIC_ID),
    *(HANDLER, BRIDGE_GROUP, DELIVERY_NUMBER, REPLAY_AGAIN, ATTEMPTS, *ATTEMPTS_BY_END),
    *(ERROR_CLASS, ERROR_MESSAGE, FIRST_FAILED_AT, FAILED_AT),
)
#: Our headers on a dead letter; all others are the producer's.
DEAD_LETTER_HEADERS: Final = frozenset({*_COMMON, HANDLERS_VERSION, REASON, ERROR_TRACEBACK})
#: Our headers on a record of a retry or replay topic.
RETRY_HEADERS: Final = frozenset({*_COMMON, RETRY_NUMBER, RETRY_TIMESTAMP, RETRY_UNTIL, RETRY_AFTER, REPLAY_ONCE})

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
