"""Tells whether a partition's log is still the one that was read, and what follows where it is not.

Offsets begin anew in a topic that was made again. In a log that lost its end (an unclean election, a disk that had
promised more than it kept) other records come to lie where some were read. Kafka's client goes on in both, no
rebalance comes, and by offsets alone the new records count as handled.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.log_identity import (
    CommitEvidence,
    LogDecision,
    SuspectedLog,
    compare_records,
    decide_log,
    merge_known_logs,
)
from bridge.consumer.offset_commits import OffsetCommits
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaException, Record, TopicPartition
from bridge.kafka.partition_offsets import cached_first_and_end
from bridge.ledger import Account, Accounts, Fate, KafkaLogChange, KnownLog, Ledger, LogHistory, Mark
from bridge.ledger.fate_rules import SETTLED, find_fate_runs
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import WINDOW, Partition
from bridge.partitions.retry_partition import RetryPartition

logger = logging.getLogger(__name__)

#: What a record was given that was read; a gap is what was not there to be read.
_READ_FATES: Final = frozenset(Fate) - {Fate.OPEN, Fate.GAP}


class LogChangeDetector:
    """The logs of the assigned partitions (`Assignment.logs`)."""

    def __init__(
        self, ledger: Ledger | None, assignment: Assignment, commits: OffsetCommits, metrics: BridgeMetrics
    ) -> None:
        self._ledger, self._assignment, self._commits, self._metrics = ledger, assignment, commits, metrics
        self._book = LogHistory(ledger) if ledger is not None else None

    def meet(
        self, place: Place, topic_id: str, said: CommitEvidence, low: int, high: int, suspected: KnownLog | None
    ) -> LogDecision | SuspectedLog:
        """Decide at a partition's beginning which log it has; another one than before only on two answers.

        One answer may come late, be no answer at all, or mix two moments: an id of before a topic was made again, and
        ends of after that.

        Parameters:
            suspected: the log that an earlier answer to all of these questions pointed to; `None`: the known one.

        Raises:
            LedgerUnavailable: it is not known.
        """
        noted = self._book.known([place]).get(place) if self._book is not None else None
        log, met, what = decide_log(
            merge_known_logs(noted, self._assignment.logs.get(place)), topic_id, said, low, high
        )
        if what is not None and log != suspected:
            return SuspectedLog(log, what)
        if what is not None:
            self._tell(place, what, met.offset or 0, said.offset or 0)
            if self._book is not None and isinstance(self._assignment.make_partition(place, 0), RetryPartition):
                # What waited in the other one may be parked still (bridge.jobs.deleted_topics).
                self._book.note_gone(place[0], time.time())
        if self._book is not None and log != noted:
            self._book.note(place, log)
        self._assignment.logs[place] = log
        return met

    def check(self, consumer: Consumer, held: Mapping[Place, Sequence[Record]]) -> list[Place]:
        """See whether records that were read are of the logs that are known, before any of them is taken in.

        Returns:
            the partitions that must begin anew, and whose records come again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: none may be taken in.
        """
        return [
            place for place, records in held.items() if not self._goes_on(consumer, self._assignment.at(place), records)
        ]

    def low(self, consumer: Consumer, place: Place) -> int:
        """Return the first offset that Kafka had when it last answered to a fetch; -1 if that is not known."""
        return _read_first_offset(consumer, place)

    def expired(self, place: Place, first: int, low: int, count: int) -> None:
        """Say what Kafka's retention took before it was handled."""
        if not count:
            return
        logger.error(
            "%s-%d: offsets %d to %d are no longer in Kafka (its retention has passed): %d of them were never handled.",
            *place,
            first,
            low - 1,
            count,
        )
        self._metrics.expired.labels(*place).inc(count)
        self._note(KafkaLogChange(*place, "expired", first, low, count, time.time()))

    def deleted(self, place: Place, first: int, end: int) -> None:
        """Say that a retry or replay topic was deleted, and what of it was not settled; unless another bridge, which
        had it a moment before or after, has said so.
        """
        if not self._is_first_to_tell(place):
            return
        lost = max(0, end - first)
        if lost:
            logger.error(
                "%s-%d: the topic was deleted, and with it up to %d records that waited there, from offset %d on. "
                "`bridge audit` of its source tells which deliveries are parked and in no retry topic.",
                *place,
                lost,
                first,
            )
        self._metrics.log_changes.labels(*place, "deleted").inc()
        self._note(KafkaLogChange(*place, "deleted", first, end, lost, time.time()))

    def _goes_on(self, consumer: Consumer, partition: Partition, records: Sequence[Record]) -> bool:
        place, known = partition.place, self._assignment.logs[partition.place]
        expected, first = partition.offsets.window.stop, records[0].offset() or 0
        if first == expected and _read_epoch(records[0]) == _read_epoch(records[-1]) == known.epoch:
            self._assignment.wrote(place, first, known.epoch)
            return True
        low = _read_first_offset(consumer, place) if first > expected else -1
        found = compare_records(
            known, expected, low, [(record.offset() or 0, _read_epoch(record)) for record in records]
        )
        if found.cut is not None and known.epoch >= 0 and (found.cut < expected or self._read(partition, found.cut)):
            self._went_back(consumer, partition, found.cut, found.epoch)
            return False
        if found.anew:
            return False
        for record in records:
            self._assignment.wrote(place, record.offset() or 0, _read_epoch(record))
        if found.cut is not None:
            log = known._replace(epoch=found.epoch)
            if self._book is not None:
                self._book.note(place, log)
            self._assignment.logs[place] = log
        return True

    def _read(self, partition: Partition, first: int) -> bool:
        """Whether the ledger has a fate of something from there on: then what it is of lies there no more."""
        if self._ledger is None:
            return False
        last = first + 2 * WINDOW
        return any(next(self._ledger.runs(a, _READ_FATES, first, last), None) for a in partition.accounts.values())

    def _went_back(self, consumer: Consumer, partition: Partition, cut: int, epoch: int) -> None:
        """What lies from `cut` on is another log, with accounts of its own.

        So nothing that still runs for what was lost marks, and nothing that was done of it hides, what came instead.
        The commit goes back before the ledger knows of the new epoch: only the old one tells that it must.
        """
        place, before = partition.place, self._assignment.logs[partition.place]
        log = before._replace(turn=before.turn + 1, epoch=epoch)
        start = min(cut, partition.safe())
        if self._ledger is not None:
            self._carry_over(self._ledger, partition, log, start, cut)
        self._assignment.logs[place] = log
        try:
            self._commits.move(consumer, place, start)
            if self._book is not None:
                self._book.note(place, log)
        except BaseException:
            self._assignment.logs[place] = before
            raise
        self._tell(place, "went back", cut, max(cut, partition.offsets.window.stop))

    def _carry_over(self, ledger: Ledger, partition: Partition, log: KnownLog, start: int, cut: int) -> None:
        """What is settled below the cut is settled in the new log too."""
        for account in partition.accounts.values():
            made = Account(account.handler, account.topic, log.id, account.partition)
            fates = ledger.fates(account, start, cut - 1) if start < cut else b""
            Accounts(ledger).join(made, start)
            Accounts(ledger).reach({made: start})
            ledger.write(
                [
                    Mark(made, range(start + run.start, start + run.stop), fate)
                    for fate in sorted(SETTLED | {Fate.GAP})
                    for run in find_fate_runs(fates, {fate})
                ]
            )

    def _tell(self, place: Place, what: str, first: int, end: int) -> None:
        if what == "made anew":
            logger.error(
                "%s-%d: the topic was deleted and made again: it is another log, and is read from its offset %d on.",
                *place,
                first,
            )
        else:
            logger.error(
                "%s-%d: the log went back: what was read from offset %d on is no longer there (an unclean election, "
                "or a disk that kept less than it had promised). From there on it is another log, and is read anew.",
                *place,
                first,
            )
        self._metrics.log_changes.labels(*place, what).inc()
        self._note(KafkaLogChange(*place, what, first, end, 0, time.time()))

    def _is_first_to_tell(self, place: Place) -> bool:
        """Whether no bridge has told yet that this log is gone, as far as is known."""
        log = self._assignment.logs.get(place)
        if self._book is None or log is None:
            return True
        try:
            return self._book.is_first_to_tell(place, log)
        except LedgerUnavailable as error:
            logger.warning("%s", error)
            return True

    def _note(self, change: KafkaLogChange) -> None:
        """For `bridge status` and `bridge audit`; nothing rests on it."""
        if self._book is None:
            return
        try:
            self._book.tell(change)
        except LedgerUnavailable as error:
            logger.warning("%s", error)


def _read_epoch(record: Record) -> int:
    epoch: Any = record.leader_epoch()
    return -1 if epoch is None else int(epoch)


def _read_first_offset(consumer: Consumer, place: Place) -> int:
    """As the last fetch said; nobody is asked."""
    try:
        return cached_first_and_end(consumer.get_watermark_offsets(TopicPartition(*place), cached=True))[0]
    except KafkaException:
        return -1
