"""Batches go into the database, each in one transaction with how far the logs are recorded then.

A record that the database refuses stops none behind it: the batch is halved until that record is alone.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from bridge.deadletters.letters.deaths import News
from bridge.deadletters.letters.letter import Group, Letter
from bridge.deadletters.store import positions, recording
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.ids import Ids
from bridge.deadletters.store.positions import Log, Reached, Step
from bridge.errors import DeskRefused, DeskUnavailable

logger = logging.getLogger(__name__)

#: What became of a record, besides `News`.
ANOTHERS: Final = "another group's"
REFUSED: Final = "refused"


class Read(NamedTuple):
    """A record that was read.

    Attributes:
        letter: `None` where it is another group's, and passed over.
        size: about how many bytes of memory it takes.
        missed: records before it that Kafka had dropped.
        is_mark: whether it is no record, but a mark of a transaction: all up to there is read.
    """

    log: Log
    offset: int
    epoch: int
    letter: Letter | None
    size: int = 0
    missed: int = 0
    is_mark: bool = False


class Written(NamedTuple):
    """What a batch came to.

    Attributes:
        counts: (topic, what) → records.
        reached: how far each of its logs is recorded now.
    """

    counts: Counter[tuple[str, str]]
    reached: dict[Log, Reached]


class Writing:
    """Writes batches; one at a time.

    Parameters:
        largest_value: bytes; of a larger value the database has the size alone.
    """

    def __init__(self, database: Database, largest_value: int) -> None:
        self._database, self._largest = database, largest_value
        self._ids = Ids()

    def write(self, batch: Sequence[Read], reached: Mapping[Log, Reached]) -> Written:
        """Record these.

        Parameters:
            batch: those of a log in their order.
            reached: how far each log is recorded.

        Raises:
            RecordedByAnother: another recorder has come further in some of the logs; nothing was written.
            DeskUnavailable: the database did not do it. What of it was written is written whole, but only the database
                knows how far.
        """
        written = Written(Counter(), dict(reached))
        self._write(batch, written)
        return written

    def _write(self, batch: Sequence[Read], written: Written, alone: bool = False) -> None:
        try:
            self._commit(batch, written)
        except DeskRefused as error:
            if len(batch) > 1:
                half = len(batch) // 2
                self._write(batch[:half], written)
                self._write(batch[half:], written)
            elif not alone:
                # Once more, with nothing remembered: what it rested on may have been cleaned up.
                self._write(batch, written, alone=True)
            else:
                self._write_bare(batch[0], written, error)

    def _write_bare(self, read: Read, written: Written, error: DeskUnavailable) -> None:
        """With its bytes alone, and where not even those are taken, not at all."""
        logger.error("%s-%d: the database does not take this record as it is. %s", read.log, read.offset, error)
        bare = None if read.letter is None else _bare(read.letter, error)
        try:
            self._commit([read._replace(letter=bare)], written, REFUSED)
        except DeskRefused:
            logger.error("%s-%d: nor its bytes alone: it is not recorded, and stays in Kafka.", read.log, read.offset)
            self._commit([read._replace(letter=None)], written, REFUSED)

    def _commit(self, batch: Sequence[Read], written: Written, what: str = ANOTHERS) -> None:
        steps, now = _steps(batch, written.reached), time.time_ns() // 1_000_000
        found = [read.letter for read in batch if read.letter is not None]
        try:
            with self._database.writing() as connection:
                positions.move(connection, steps, now)
                told = recording.Recording(connection, self._ids, now, self._largest).record(found)
        except BaseException:
            self._ids.forget()
            raise
        self._ids.keep()
        written.reached.update({step.log: step.after for step in steps})
        written.counts.update(_counted(batch, told, what))


def _steps(batch: Sequence[Read], reached: Mapping[Log, Reached]) -> list[Step]:
    last = {read.log: read for read in batch}
    missed: Counter[Log] = Counter()
    for read in batch:
        missed[read.log] += read.missed
    return [
        Step(log, reached[log].next, Reached(read.offset + 1, read.epoch), missed[log]) for log, read in last.items()
    ]


def _counted(batch: Sequence[Read], told: Sequence[News], what: str) -> Counter[tuple[str, str]]:
    news = iter(told)
    refused = what == REFUSED
    records = (read for read in batch if not read.is_mark)
    found = ((read, what if read.letter is None else next(news)) for read in records)
    return Counter((read.log.topic, REFUSED if refused else str(said)) for read, said in found)


def _bare(letter: Letter, error: DeskUnavailable) -> Letter:
    return replace(
        letter,
        kind=letter.kind._replace(group=Group("", "", ""), topic="", consumer_group="", reason="", version=""),
        error_message=f"The database did not take this record as it is: {error}"[:2_000],
        traceback="",
    )
