"""Whether a record of a dead-letter topic is a new failure, a repeated failure or a duplicate (pure)."""

from enum import StrEnum
from typing import NamedTuple

from bridge.deadletters.model.stored_letter import ENDED, LetterStatus, StoredLetter


class DeathKind(StrEnum):
    """What a record tells."""

    #: A delivery of which nothing was known.
    NEW = "new"
    #: It died again.
    AGAIN = "died again"
    #: The same death, written twice.
    DUPLICATE = "duplicate"
    #: The same record, read again.
    READ_AGAIN = "read again"


class KnownLetter(NamedTuple):
    """What the desk has of a letter.

    Attributes:
        status_at: ms since the epoch; since when it has the status.
        number, failed_at: of its last death.
        places: where its records lie, one a death: topic, partition, offset.
        is_unknown: whether nobody can tell what became of the replay that it was sent back with.
    """

    status: LetterStatus
    status_at: int
    number: int
    failed_at: int
    places: frozenset[tuple[str, int, int]]
    is_unknown: bool = False


def classify_death(known: KnownLetter, letter: StoredLetter) -> DeathKind:
    """Tell a new death of a delivery, after which it is open again, from one that is known.

    A replay has a higher number than what was sent back, so a death with one is new, whatever became of the letter
    meanwhile. With the same number (or a lower one, where a delivery began anew) it ran once more than is known: after
    a crash, by `bridge reset --again`, or because the ledger was lost. That is a new death if it failed later than what
    is known; but while a replay is under way, and its end not given up as unknown, it is not what became of that, and
    of what was ended meanwhile it is new only if it failed after that: else it is late news of what was ended.

    A record at a place that is known is that one again; unless it tells of a later death, with a higher number: then
    the topic was made again.
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
