"""The writer of batches, each in one transaction with the positions that it reaches.

If the database refuses a record, the batch is halved until that record is alone.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from bridge.deadletters.db import letter_writer, position_rows
from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.position_rows import PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.letter_deduplication import DeathKind
from bridge.deadletters.model.letter_parser import OURS
from bridge.deadletters.model.stored_letter import StoredLetter
from bridge.errors import DeskRefused, DeskUnavailable
from bridge.formats.text_forms import format_count


class TakenCounts:
    """The counts of recorded records by meaning, and those of other programs by origin.

    Attributes:
        counts: meaning ("new", "duplicate", …, as in the metric) → records.
        theirs: origin → records.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.theirs: Counter[str] = Counter()

    def add(self, letters: Iterable[StoredLetter | None], counts: Mapping[tuple[str, str], int]) -> None:
        """Count a batch that was written.

        Parameters:
            letters: of its records; `None` for another group's.
            counts: (topic, meaning) → records.
        """
        for (_, what), count in counts.items():
            self.counts[what] += count
        self.theirs.update(
            letter.kind.origin for letter in letters if letter is not None and letter.kind.origin != OURS
        )

    def __str__(self) -> str:
        """Return the counts for the log: `1,204 records: 1,200 new, 4 duplicate; 3 of them by others (spring 2,
        unknown 1)`.
        """
        said = ", ".join(f"{count:,} {what}" for what, count in self.counts.most_common())
        others = ", ".join(f"{who} {count:,}" for who, count in self.theirs.most_common())
        words = format_count(self.counts.total(), "record") + (f": {said}" if said else "")
        return f"{words}; {self.theirs.total():,} of them by others ({others})" if others else words


logger = logging.getLogger(__name__)

#: The meanings of a record besides `DeathKind`.
ANOTHERS: Final = "another group's"
REFUSED: Final = "refused"


class ReadRecord(NamedTuple):
    """A record that was read.

    Attributes:
        letter: `None` if it is another group's, and skipped.
        size: its approximate bytes of memory.
        missed: records before it that Kafka had dropped.
        is_mark: whether it is no record, but the mark of a transaction.
    """

    log: RecordedLog
    offset: int
    epoch: int
    letter: StoredLetter | None
    size: int = 0
    missed: int = 0
    is_mark: bool = False


@dataclass(eq=False)
class RecordedPartition:
    """A partition that is recorded, from its start until it is revoked or restarted.

    Attributes:
        next: the offset that is read next.
        reached: the recorded position.
        at_place: whether Kafka's client is at this offset: after a seek it may report the old position until it has
            returned a record.
        unwritten: records that were read and are in no batch yet.
    """

    log: RecordedLog
    next: int
    reached: RecordedPosition
    at_place: bool
    unwritten: list[ReadRecord] = field(default_factory=list)


class RecordBatch(NamedTuple):
    """The records of one transaction: some of each partition, in their order."""

    parts: list[tuple[RecordedPartition, list[ReadRecord]]]

    @property
    def reads(self) -> list[ReadRecord]:
        """Return all its records."""
        return [read for _, reads in self.parts for read in reads]

    @property
    def reached(self) -> dict[RecordedLog, RecordedPosition]:
        """Return the recorded position of each log, as far as known."""
        return {partition.log: partition.reached for partition, _ in self.parts}


class WrittenBatch(NamedTuple):
    """The result of a batch.

    Attributes:
        counts: (topic, meaning) → records.
        reached: the recorded position of each of its logs.
    """

    counts: Counter[tuple[str, str]]
    reached: dict[RecordedLog, RecordedPosition]


class BatchWriter:
    """The writer of batches, one at a time.

    Parameters:
        largest_value: bytes; of a larger value only the size is stored.
    """

    def __init__(self, database: Database, largest_value: int) -> None:
        self._database, self._largest = database, largest_value
        self._ids = IdCache()

    def write(self, batch: Sequence[ReadRecord], reached: Mapping[RecordedLog, RecordedPosition]) -> WrittenBatch:
        """Record a batch.

        Parameters:
            batch: records, those of a log in their order.
            reached: the recorded position of each log.

        Raises:
            RecordedByAnother: another recorder has recorded more of some logs; nothing was written.
            DeskUnavailable: the database failed. Complete transactions of the batch may be written.
        """
        written = WrittenBatch(Counter(), dict(reached))
        self._write(batch, written)
        return written

    def _write(self, batch: Sequence[ReadRecord], written: WrittenBatch, alone: bool = False) -> None:
        try:
            self._commit(batch, written)
        except DeskRefused as error:
            if len(batch) > 1:
                half = len(batch) // 2
                self._write(batch[:half], written)
                self._write(batch[half:], written)
            elif not alone:
                # Once more without cached ids: their rows may have been cleaned up.
                self._write(batch, written, alone=True)
            else:
                self._write_bare(batch[0], written, error)

    def _write_bare(self, read: ReadRecord, written: WrittenBatch, error: DeskUnavailable) -> None:
        """Record only the bytes of a record that the database refuses; skip it if these are refused too."""
        logger.error(
            "%s-%d: the database refuses this record; its bytes alone are recorded. %s", read.log, read.offset, error
        )
        bare = None if read.letter is None else _strip_letter(read.letter, error)
        try:
            self._commit([read._replace(letter=bare)], written, REFUSED)
        except DeskRefused:
            logger.error(
                "%s-%d: the database refuses its bytes too: the record is not recorded, and stays in Kafka.",
                read.log,
                read.offset,
            )
            self._commit([read._replace(letter=None)], written, REFUSED)

    def _commit(self, batch: Sequence[ReadRecord], written: WrittenBatch, what: str = ANOTHERS) -> None:
        steps, now = _build_steps(batch, written.reached), time.time_ns() // 1_000_000
        found = [self._database.payloads.index(read.letter) for read in batch if read.letter is not None]
        try:
            with self._database.writing() as connection:
                position_rows.move_positions(connection, steps, now)
                told = letter_writer.LetterWriter(connection, self._ids, now, self._largest).record(found)
        except BaseException:
            self._ids.forget()
            raise
        self._ids.keep()
        written.reached.update({step.log: step.after for step in steps})
        written.counts.update(_count_batch(batch, told, what))


def _build_steps(batch: Sequence[ReadRecord], reached: Mapping[RecordedLog, RecordedPosition]) -> list[PositionStep]:
    last = {read.log: read for read in batch}
    missed: Counter[RecordedLog] = Counter()
    for read in batch:
        missed[read.log] += read.missed
    return [
        PositionStep(log, reached[log].next, RecordedPosition(read.offset + 1, read.epoch), missed[log])
        for log, read in last.items()
    ]


def _count_batch(batch: Sequence[ReadRecord], told: Sequence[DeathKind], what: str) -> Counter[tuple[str, str]]:
    news = iter(told)
    refused = what == REFUSED
    records = (read for read in batch if not read.is_mark)
    found = ((read, what if read.letter is None else next(news)) for read in records)
    return Counter((read.log.topic, REFUSED if refused else str(said)) for read, said in found)


def _strip_letter(letter: StoredLetter, error: DeskUnavailable) -> StoredLetter:
    return replace(
        letter,
        kind=letter.kind._replace(group=FailureGroup("", "", ""), topic="", consumer_group="", reason="", version=""),
        error_message=f"The database refused this record: {error}"[:2_000],
        traceback="",
    )
