"""The detection of recreated topics and truncated logs, and the restart of their partitions.

Offsets start anew in a recreated topic. In a truncated log (an unclean election, a disk that lost writes) other
records take the offsets of some that were read. Kafka's client goes on in both without a rebalance, and by offsets
alone the new records would count as handled.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.ledger_questions import LedgerSearch, LogNote, LogQuestion
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
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import Consumer, KafkaException, Record, TopicPartition
from bridge.kafka.partition_offsets import cached_first_and_end
from bridge.ledger import Account, Accounts, Fate, KafkaLogChange, KnownLog, Ledger, LogHistory, Mark
from bridge.ledger.fate_rules import SETTLED, find_fate_runs
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition
from bridge.settings import DEFAULT_WINDOW

logger = logging.getLogger(__name__)

#: The fates of records that were read; a gap was never a record.
_READ_FATES: Final = frozenset(Fate) - {Fate.OPEN, Fate.GAP}


class LogChangeDetector:
    """The detector of changed logs among the assigned partitions (`Assignment.logs`)."""

    def __init__(
        self, ledger: Ledger | None, assignment: Assignment, commits: OffsetCommits, metrics: BridgeMetrics
    ) -> None:
        self._ledger, self._assignment, self._commits, self._metrics = ledger, assignment, commits, metrics
        self._history = LogHistory(ledger) if ledger is not None else None

    def decide(
        self, place: Place, topic_id: str, evidence: CommitEvidence, low: int, high: int, suspected: KnownLog | None
    ) -> LedgerSearch[LogDecision | SuspectedLog]:
        """Decide at a partition's start which log it has; a changed one needs two answers of Kafka that agree.

        One answer may come late, or mix two moments: an id from before the topic was recreated, and ends from after.

        Parameters:
            suspected: the changed log that earlier answers pointed to; `None`: none.

        Raises:
            LedgerUnavailable: the known log could not be read.
        """
        noted = None
        if self._history is not None:
            noted = yield from LogQuestion(place).ask()
        log, decision, what = decide_log(
            merge_known_logs(noted, self._assignment.logs.get(place)), topic_id, evidence, low, high
        )
        if what is not None and log != suspected:
            return SuspectedLog(log, what)
        if what is not None:
            self._report(place, what, decision.offset or 0, evidence.offset or 0)
            if self._history is not None and isinstance(self._assignment.make_partition(place, 0), RetryPartition):
                # Deliveries in the old log may still be parked (bridge.jobs.deleted_topics).
                self._history.note_gone(place[0], time.time())
        if self._history is not None and log != noted:
            yield from LogNote(place, log).ask()
        self._assignment.logs[place] = log
        return decision

    def check(self, consumer: Consumer, held: Mapping[Place, Sequence[Record]]) -> list[Place]:
        """Check that records are of the known logs, before any of them is taken in.

        Returns:
            the partitions that must start anew; their records are read again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: no record may be taken in.
        """
        return [
            place
            for place, records in held.items()
            if not self._is_same_log(consumer, self._assignment.get_partition(place), records)
        ]

    def get_first_offset(self, consumer: Consumer, place: Place) -> int:
        """Return the first offset of Kafka's last answer to a fetch; -1 if unknown."""
        return _read_first_offset(consumer, place)

    def report_expired(self, place: Place, first: int, low: int, count: int) -> None:
        """Report records that Kafka's retention deleted before they were handled."""
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

    def report_deleted(self, place: Place, first: int, end: int) -> None:
        """Report that a retry or replay topic was deleted, with its unsettled records, unless another bridge has."""
        if not self._is_first_to_tell(place):
            return
        lost = max(0, end - first)
        if lost:
            logger.error(
                "%s-%d: the topic was deleted with up to %s that waited there, from offset %d on. "
                "`bridge audit` of its source lists the deliveries that are parked and in no retry topic.",
                *place,
                format_count(lost, "record"),
                first,
            )
        self._metrics.log_changes.labels(*place, "deleted").inc()
        self._note(KafkaLogChange(*place, "deleted", first, end, lost, time.time()))

    def _is_same_log(self, consumer: Consumer, partition: Partition, records: Sequence[Record]) -> bool:
        place, known = partition.place, self._assignment.logs[partition.place]
        expected, first = partition.offsets.window.stop, records[0].offset() or 0
        if first == expected and _read_epoch(records[0]) == _read_epoch(records[-1]) == known.epoch:
            self._assignment.note_epoch(place, first, known.epoch)
            return True
        low = _read_first_offset(consumer, place) if first > expected else -1
        comparison = compare_records(
            known, expected, low, [(record.offset() or 0, _read_epoch(record)) for record in records]
        )
        if (
            comparison.cut is not None
            and known.epoch >= 0
            and (comparison.cut < expected or self._has_read_from(partition, comparison.cut))
        ):
            self._restart_truncated(consumer, partition, comparison.cut, comparison.epoch)
            return False
        if comparison.anew:
            return False
        for record in records:
            self._assignment.note_epoch(place, record.offset() or 0, _read_epoch(record))
        if comparison.cut is not None:
            log = known._replace(epoch=comparison.epoch)
            if self._history is not None:
                self._history.note(place, log)
            self._assignment.logs[place] = log
        return True

    def _has_read_from(self, partition: Partition, first: int) -> bool:
        """Return whether the ledger has fates of records from an offset on, which the log has no longer."""
        if self._ledger is None:
            return False
        last = first + 2 * DEFAULT_WINDOW
        return any(next(self._ledger.runs(a, _READ_FATES, first, last), None) for a in partition.accounts.values())

    def _restart_truncated(self, consumer: Consumer, partition: Partition, cut: int, epoch: int) -> None:
        """Give the log from `cut` on accounts of its own.

        So a delivery of a lost record neither marks nor hides the record that took its offset. The commit moves back
        before the ledger knows the new epoch: only the old one tells that it must.
        """
        place, before = partition.place, self._assignment.logs[partition.place]
        log = before._replace(turn=before.turn + 1, epoch=epoch)
        start = min(cut, partition.safe())
        if self._ledger is not None:
            self._carry_over(self._ledger, partition, log, start, cut)
        self._assignment.logs[place] = log
        try:
            self._commits.move(consumer, place, start)
            if self._history is not None:
                self._history.note(place, log)
        except BaseException:
            self._assignment.logs[place] = before
            raise
        self._report(place, "went back", cut, max(cut, partition.offsets.window.stop))

    def _carry_over(self, ledger: Ledger, partition: Partition, log: KnownLog, start: int, cut: int) -> None:
        """Copy the settled fates below the cut to the accounts of the new log."""
        for account in partition.accounts.values():
            made = Account(account.handler, account.topic, log.id, account.partition)
            fates = ledger.fates(account, start, cut - 1) if start < cut else b""
            Accounts(ledger).join(made, start)
            Accounts(ledger).raise_reached({made: start})
            ledger.write(
                [
                    Mark(made, range(start + run.start, start + run.stop), fate)
                    for fate in sorted(SETTLED | {Fate.GAP})
                    for run in find_fate_runs(fates, {fate})
                ]
            )

    def _report(self, place: Place, what: str, first: int, end: int) -> None:
        if what == "made anew":
            logger.error(
                "%s-%d: the topic was deleted and recreated: the new log is read from its offset %d on.",
                *place,
                first,
            )
        else:
            logger.error(
                "%s-%d: the log was truncated: the records read from offset %d on are lost (an unclean election, or a "
                "disk that lost writes). It is read anew from there on.",
                *place,
                first,
            )
        self._metrics.log_changes.labels(*place, what).inc()
        self._note(KafkaLogChange(*place, what, first, end, 0, time.time()))

    def _is_first_to_tell(self, place: Place) -> bool:
        """Return whether no bridge has reported yet that this log is gone, as far as is known."""
        log = self._assignment.logs.get(place)
        if self._history is None or log is None:
            return True
        try:
            return self._history.is_first_to_tell(place, log)
        except LedgerUnavailable as error:
            logger.warning("%s", error)
            return True

    def _note(self, change: KafkaLogChange) -> None:
        """Note a change for `bridge status` and `bridge audit`; nothing else depends on it."""
        if self._history is None:
            return
        try:
            self._history.add_change(change)
        except LedgerUnavailable as error:
            logger.warning("%s", error)


def _read_epoch(record: Record) -> int:
    epoch: Any = record.leader_epoch()
    return -1 if epoch is None else int(epoch)


def _read_first_offset(consumer: Consumer, place: Place) -> int:
    """Return the first offset as the last fetch had it, without asking Kafka; -1 if unknown."""
    try:
        return cached_first_and_end(consumer.get_watermark_offsets(TopicPartition(*place), cached=True))[0]
    except KafkaException:
        return -1
