"""A dead letter as the dead-letter store has it: its status, its identity, and what it shares with others (pure)."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.formats.delivery import Attempts, Header, Headers


class LetterStatus(StrEnum):
    """Where a dead letter stands."""

    OPEN = "open"
    REPLAYING = "replaying"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    ARCHIVED = "archived"


#: Why a delivery dies (`tasks.policy.retry_policy.REASONS`, which is the Celery side's).
REASONS: Final = ("exhausted", "permanent", "undecodable", "poison", "expired", "unknown_handler")
#: Of what nobody need do anything any more: cleaned up after a while.
ENDED: Final = (LetterStatus.RESOLVED, LetterStatus.DISCARDED, LetterStatus.ARCHIVED)
#: The cause of letters that were recorded before causes were, and of those behind the most causes of a group.
UNKNOWN_CAUSE: Final = "unknown"
OTHER_CAUSE: Final = "other"
#: As a number of bytes is written before them.
_SIZE: Final = struct.Struct(">i")


class FailureGroup(NamedTuple):
    """Failures that are one thing to mend.

    Attributes:
        place: the first frame of the user's code that raised it, without a line number: `orders/bank.py:pay`.
    """

    handler: str
    error_class: str
    place: str

    @property
    def digest(self) -> bytes:
        """What it is known by in the database."""
        return compute_digest(*self)


class LetterKind(NamedTuple):
    """What letters have in common that is asked for.

    Attributes:
        origin: "bridge", or who else wrote it (bridge.formats.foreign_dead_letter).
        consumer_group: that handed it off; of others' letters a consumer group's or a connector's name.
        version: of the code that failed.
        cause: of these failures within the group (bridge.deadletters.model.fingerprint), or a word below.
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
        """What it is known by in the database."""
        # Kinds that were recorded before causes keep their digest.
        common = self[1:-1] if self.cause == UNKNOWN_CAUSE else self[1:]
        return compute_digest(*self.group, *common)


class LetterIdentity(NamedTuple):
    """Whose delivery a letter is: one row of the database.

    Attributes:
        handler: of others' letters, "".
        topic: the source; where a letter does not say it, the dead-letter topic in which it lies.
    """

    consumer_group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    handler: str

    @property
    def digest(self) -> bytes:
        """What it is known by in the database."""
        return compute_digest(*map(str, self))

    def __str__(self) -> str:
        """`orders-3-1234:orders.handlers.charge`, as deliveries are named."""
        place = f"{self.topic}-{self.partition}-{self.offset}"
        return f"{place}:{self.handler}" if self.handler else place


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A record of a dead-letter topic, read.

    Attributes:
        identity: whose delivery it is.
        kind: what it has in common with others.
        key, value: as produced.
        headers: the producer's own.
        timestamp: of the source record, in ms since the epoch, where it has one.
        number: how often its delivery was parked or replayed.
        runs: how often the handler ran for it.
        attempts: what became of that.
        first_failed_at, failed_at: ms since the epoch.
        topic, partition, offset: where the letter itself lies.
        again: by what it had been asked to run though it was done; empty: it was not.
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

    @property
    def value_size(self) -> int:
        """Bytes of its value; -1: a tombstone."""
        return -1 if self.value is None else len(self.value)


def compute_digest(*parts: str) -> bytes:
    """16 bytes that stand for these, in this order."""
    said = (part.encode("utf-8", "surrogateescape") for part in parts)
    data = b"".join([each for some in said for each in (len(some).to_bytes(4, "big"), some)])
    return hashlib.blake2b(data, digest_size=16).digest()


def key_digest(key: bytes | None) -> int | None:
    """A number that stands for a key, for an index; `None` for no key."""
    if key is None:
        return None
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big", signed=True)


def pack_headers(headers: Sequence[Header]) -> bytes:
    """Headers as one value, byte for byte."""
    parts = [_sized(name.encode("utf-8", "surrogateescape")) + _sized(value) for name, value in headers]
    return b"".join(parts)


def unpack_headers(headers: bytes) -> Headers:
    """What `packed` made."""
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
