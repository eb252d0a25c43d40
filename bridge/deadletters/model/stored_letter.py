"""A dead letter as it is stored: its status, its identity, and the columns that it shares with others (pure)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self

from bridge.deadletters.model.digest import compute_digest
from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.search_words import find_letter_words
from bridge.formats.attempt_history import History
from bridge.formats.delivery import Attempts, Header, Headers
from bridge.formats.delivery_identity import Origin


class LetterStatus(StrEnum):
    """The status of a dead letter."""

    OPEN = "open"
    REPLAYING = "replaying"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    ARCHIVED = "archived"


#: The reasons of dead letters (`tasks.policy.failure_decision.REASONS` on the Celery side).
REASONS: Final = ("exhausted", "permanent", "undecodable", "poison", "expired", "unknown_handler")
#: The statuses of ended letters, which are cleaned up after a while.
ENDED: Final = (LetterStatus.RESOLVED, LetterStatus.DISCARDED, LetterStatus.ARCHIVED)
#: The statuses of letters that may be discarded. An archived one may still be dead in the ledger, and hold its key.
DISCARDABLE: Final = (LetterStatus.OPEN, LetterStatus.ARCHIVED)
#: The cause of letters that old versions recorded, and of those beyond the most causes of a group.
UNKNOWN_CAUSE: Final = "unknown"
OTHER_CAUSE: Final = "other"
#: The format of a length before its bytes.
_SIZE: Final = struct.Struct(">i")


class LetterKind(NamedTuple):
    """The columns that letters share and filters select.

    Attributes:
        origin: "bridge", or the other program that wrote it (bridge.formats.foreign_dead_letter).
        consumer_group: the group that handed it off; for other programs a consumer group or a connector.
        version: of the code that failed.
        cause: the fingerprint within the group (model/failure_group.py), or a word below.
    """

    group: FailureGroup
    topic: str
    origin: str
    consumer_group: str
    reason: str
    version: str
    cause: str = UNKNOWN_CAUSE

    @property
    def digest(self) -> bytes:
        """Return the key in the database."""
        # Kinds that old versions recorded keep their digest.
        common = self[1:-1] if self.cause == UNKNOWN_CAUSE else self[1:]
        return compute_digest(*self.group, *common)


def name_delivery(topic: str, partition: int, offset: int, handler: str) -> str:
    """Return the name of a delivery: `orders-3-1234:orders.handlers.charge`."""
    return f"{topic}-{partition}-{offset}" + (f":{handler}" if handler else "")


class LetterIdentity(NamedTuple):
    """The identity of a letter: one row of the database.

    Attributes:
        handler: "" for letters of other programs.
        topic: the source topic; if unknown, the dead-letter topic.
    """

    consumer_group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    handler: str

    @classmethod
    def for_delivery(cls, delivery: Origin) -> Self:
        """Return the identity of the letter that a delivery has if it dies."""
        return cls(
            delivery.group, delivery.topic, delivery.topic_id, delivery.partition, delivery.offset, delivery.handler
        )

    @property
    def digest(self) -> bytes:
        """Return the key in the database."""
        return compute_digest(*map(str, self))

    def __str__(self) -> str:
        """Return the name of the delivery: `orders-3-1234:orders.handlers.charge`."""
        return name_delivery(self.topic, self.partition, self.offset, self.handler)


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter as read from a record of a dead-letter topic.

    Attributes:
        identity: of its delivery.
        kind: the columns that it shares.
        key, value: as produced.
        headers: the producer's.
        timestamp: of the source record, in ms since the epoch, where it has one.
        number: how often its delivery was parked or replayed.
        runs: the runs of the handler for it.
        attempts: their results.
        first_failed_at, failed_at: ms since the epoch.
        topic, partition, offset: of its own record.
        again: the redrive that ran it though it was done; empty: none.
        readable: the value as people read it, if that is not as produced (payload_codec.py).
        trace: the context of its delivery's last hop, if traces were on.
        history: its last attempts.
    """

    identity: LetterIdentity
    kind: LetterKind
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    number: int
    runs: int
    attempts: Attempts
    error_message: str
    traceback: str
    first_failed_at: int
    failed_at: int
    topic: str
    partition: int
    offset: int
    again: str = ""
    readable: bytes | None = None
    trace: str = ""
    history: History = ()

    @property
    def value_size(self) -> int:
        """Return the bytes of its value; -1 for a tombstone."""
        return -1 if self.value is None else len(self.value)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words by which it is found."""
        value = self.value if self.readable is None else self.readable
        return find_letter_words(self.error_message, self.key, self.headers, value)


def pack_headers(headers: Sequence[Header]) -> bytes:
    """Return headers as one value, byte for byte."""
    parts = [_sized(name.encode("utf-8", "surrogateescape")) + _sized(value) for name, value in headers]
    return b"".join(parts)


def unpack_headers(headers: bytes) -> Headers:
    """Return the headers that `pack_headers` packed."""
    found: list[bytes | None] = []
    at, end = 0, len(headers)
    while at < end:
        (size,) = _SIZE.unpack_from(headers, at)
        at += 4
        found.append(None if size < 0 else headers[at : at + size])
        at += max(size, 0)
    pairs = zip(found[::2], found[1::2], strict=True)
    return tuple([((name or b"").decode("utf-8", "surrogateescape"), value) for name, value in pairs])


def _sized(part: bytes | None) -> bytes:
    return _SIZE.pack(-1) if part is None else _SIZE.pack(len(part)) + part
