"""Whether a record of a dead-letter topic is a new failure, a repeated failure or a duplicate (pure)."""

from enum import StrEnum
from typing import NamedTuple

from bridge.deadletters.model.stored_letter import ENDED, LetterStatus, StoredLetter


class DeathKind(StrEnum):
    """The meaning of a record of a dead-letter topic."""

    #: The first death of a delivery.
    NEW = "new"
    #: It died again.
    AGAIN = "died again"
    #: The same death, written twice.
    DUPLICATE = "duplicate"
    #: The same record, read again.
    READ_AGAIN = "read again"


class KnownLetter(NamedTuple):
    """The stored facts of a letter.

    Attributes:
        status_at: ms since the epoch; since when it has the status.
        number, failed_at: of its last death.
        places: the positions of its records, one for each death: topic, partition, offset.
        is_unknown: whether the outcome of its replay is unknown.
    """

    status: LetterStatus
    status_at: int
    number: int
    failed_at: int
    places: frozenset[tuple[str, int, int]]
    is_unknown: bool = False


def classify_death(known: KnownLetter, letter: StoredLetter) -> DeathKind:
    """Return whether a record is a new death of a delivery, which opens it again, or a known one.

    A replay has a higher number than the letter, so a death with a higher number is always new. A death with the same
    or a lower number comes from an additional run: after a crash, `bridge reset --again`, or a lost ledger. It is new
    if it failed later than the known death, with two exceptions: while a replay is in flight (and its outcome is not
    unknown), it does not count; and a letter that has ended is opened only by a failure after its end.

    A record at a known position is the same record, unless its number is higher: then the topic was recreated.
    """
    later = letter.number > known.number and letter.failed_at > known.failed_at
    if (letter.topic, letter.partition, letter.offset) in known.places and not later:
        return DeathKind.READ_AGAIN
    if letter.number > known.number:
        return DeathKind.AGAIN
    is_under_way = known.status is LetterStatus.REPLAYING and not known.is_unknown
    if letter.failed_at <= known.failed_at or is_under_way:
        return DeathKind.DUPLICATE
    if known.status in ENDED and letter.failed_at <= known.status_at:
        return DeathKind.DUPLICATE
    return DeathKind.AGAIN
