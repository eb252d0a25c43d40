"""The check of a retry or replay record against its source record: whether that exists, and has ended."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.partition_offsets import END
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import RETRY_RECORD, Fate, KnownLog, Ledger, Mark, is_to_skip
from bridge.partitions.due_queue import HeldRecord
from bridge.partitions.ordering import DeliveryGroup
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition

logger = logging.getLogger(__name__)

#: Returns whether a record is or was at a partition, log id and offset; `None` if that is not known yet.
SourceRecordExists: TypeAlias = Callable[[Place, str, int], bool | None]
#: A partition, deliveries of one handler taken from it, and their records.
TakenGroup: TypeAlias = tuple[Partition, DeliveryGroup, list[Any]]


def leave_out_ended(
    ledger: Ledger | None, taken: Sequence[TakenGroup], exists: SourceRecordExists = lambda *_: True
) -> tuple[list[TakenGroup], list[Mark]]:
    """Leave out records whose source record has ended or never existed; return the rest, and marks for the ledger.

    Parameters:
        exists: whether a source record exists, asked if the ledger knows nothing of it; on `None` the deliveries are
            given back, and taken again.

    Raises:
        LedgerUnavailable: Redis does not answer; nothing has changed.
    """
    retries = [each for each in taken if isinstance(each[0], RetryPartition)]
    if ledger is None or not retries:
        return list(taken), []
    fates_of = iter(ledger.fates_of([(held[0].owner.account, _source_offsets(held)) for _, _, held in retries]))
    left: list[TakenGroup] = []
    marks: list[Mark] = []
    for partition, group, records in taken:
        if isinstance(partition, RetryPartition):
            remaining = _find_open_rest(partition, group, records, next(fates_of), marks, exists)
            if remaining is not None:
                left.append(remaining)
        else:
            left.append((partition, group, records))
    return left, marks


def _source_offsets(held: Sequence[HeldRecord]) -> list[int]:
    return sorted({each.origin for each in held})


def _find_open_rest(
    partition: RetryPartition,
    group: DeliveryGroup,
    held: list[HeldRecord],
    found: bytes,
    marks: list[Mark],
    exists: SourceRecordExists,
) -> TakenGroup | None:
    fates = dict(zip(_source_offsets(held), map(Fate, found), strict=True))
    ended = [each.offset for each in held if _has_ended(each, fates[each.origin], replays=partition.replays)]
    answers = {
        each.offset: _has_source_record(each, fates[each.origin], exists)
        for each in held
        if each.offset not in set(ended)
    }
    made_up = [offset for offset, answer in answers.items() if answer is False]
    waiting = [offset for offset, answer in answers.items() if answer is None]
    for offsets, fate in ((ended, Fate.DONE), (made_up, Fate.GAP)):
        if offsets:
            partition.settle(RETRY_RECORD, offsets, fate)
            marks.append(Mark(partition.account, offsets, fate))
    _log_refused(partition, [each for each in held if each.offset in made_up])
    if waiting:
        partition.give_back(group.handler, waiting)
    rest = [each for each in held if answers.get(each.offset)]
    if len(rest) == len(held):
        return partition, group, held
    return (partition, DeliveryGroup(group.handler, [each.offset for each in rest], group.why), rest) if rest else None


def _has_source_record(held: HeldRecord, origin: Fate, exists: SourceRecordExists) -> bool | None:
    """Return whether the source record of a retry record exists; the ledger knows most of them."""
    if origin is not Fate.OPEN:
        return True
    message = held.delivery.message
    return exists((message.topic, message.partition), held.parked.topic_id, message.offset)


def _log_refused(partition: RetryPartition, refused: Sequence[HeldRecord]) -> None:
    partition.note_strange(len(refused))
    if not (many := partition.refusals.count(len(refused))):
        return
    message = refused[0].delivery.message
    logger.error(
        "%s-%d-%d names source record %s-%d-%d, which Kafka does not have yet: it is left alone (%d such records since "
        "the last such line). Who may write to %s decides what runs: restrict that.",
        *partition.place,
        refused[0].offset,
        message.topic,
        message.partition,
        message.offset,
        many,
        partition.topic,
    )


def _has_ended(held: HeldRecord, origin: Fate, *, replays: bool) -> bool:
    delivery = held.delivery
    return is_to_skip(Fate.OPEN, origin, retried=delivery.retried(replays=replays), again=bool(delivery.again))


#: Answers of Kafka that must agree before a source record counts as one that never existed.
PROOFS = 2


class _SourceRecord(NamedTuple):
    """A source record as a retry or replay record names it."""

    place: Place
    log_id: str
    offset: int


class _MissingProof(NamedTuple):
    """The answers of Kafka that there is no such record, and the topic listings at the first question."""

    denied: int
    listings: int


class SourceRecordCheck:
    """The check that a source record exists, and was not made up by somebody.

    A delivery with coordinates beyond its partition's end would be done before its record exists, and that record
    would never run. Kafka is asked beside the loop: until it has answered, a record waits.
    """

    def __init__(self, catalog: TopicCatalog, known: Callable[[Collection[Place]], Mapping[Place, KnownLog]]) -> None:
        self._catalog, self._asking, self._known = catalog, catalog.asking(), known
        #: The end of each partition, and the id of its log: a truncated log ends lower.
        self._ends: dict[Place, tuple[str, int]] = {}
        self._logs: dict[Place, KnownLog] = {}
        self._doubts: dict[_SourceRecord, _MissingProof] = {}
        #: The doubtful records that the pending question can decide.
        self._asked: frozenset[_SourceRecord] = frozenset()

    def exists(self, place: Place, log_id: str, offset: int) -> bool | None:
        """Return whether the source has, or had, a record at an offset; `None` while Kafka has not said so.

        Parameters:
            log_id: the log of the offset; in a deleted or truncated one no record can be hidden.
        """
        topic, partition = place
        log, source = KnownLog.from_id(log_id), _SourceRecord(place, log_id, offset)
        if log.topic_id != self._catalog.topic_ids.get(topic) or offset < self._end(source):
            return True
        self._hear()
        if offset < self._end(source) or self._is_truncated(place, log):
            self._doubts.pop(source, None)
            return True
        doubt = self._doubts.setdefault(source, _MissingProof(0, self._catalog.listings))
        is_missing = partition not in self._catalog.numbers.get(topic, (partition,))
        if doubt.denied >= PROOFS or (is_missing and self._catalog.listings >= doubt.listings + PROOFS):
            del self._doubts[source]
            return False
        if not self._asked:
            self._asked = frozenset(self._doubts)
            self._asking.ask_offsets({each.place: END for each in self._asked})
        return None

    def _end(self, source: _SourceRecord) -> int:
        log_id, end = self._ends.get(source.place, ("", 0))
        return end if log_id == source.log_id else 0

    def _is_truncated(self, place: Place, log: KnownLog) -> bool:
        """Return whether the log was truncated since: other records have its offsets, with accounts of their own."""
        known = self._logs.get(place)
        return known is not None and known.topic_id == log.topic_id and log.turn < known.turn

    def _knows_log(self, source: _SourceRecord) -> bool:
        known = self._logs.get(source.place)
        return known is not None and known.topic_id == KnownLog.from_id(source.log_id).topic_id

    def _hear(self) -> None:
        if (told := self._asking.take_answer()) is None:
            return
        asked, self._asked = self._asked, frozenset()
        try:
            self._logs |= self._known({source.place for source in asked})
        except LedgerUnavailable as error:
            logger.debug("%s", error)
            return
        for source in asked:
            # An unknown log, as after a wipe of Redis, may have been truncated: nothing is denied.
            if source.place not in told or source not in self._doubts or not self._knows_log(source):
                continue
            end = max(told[source.place], self._end(source))
            self._ends[source.place] = (source.log_id, end)
            if source.offset >= end:
                doubt = self._doubts[source]
                self._doubts[source] = doubt._replace(denied=doubt.denied + 1)
