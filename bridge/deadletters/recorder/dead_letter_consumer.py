"""The consumer of the dead-letter topics. A partition is paused until its start position is known."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from bridge.deadletters.db.position_rows import RecordedLog, RecordedPosition
from bridge.deadletters.model.letter_parser import OURS, parse_letter
from bridge.deadletters.model.stored_letter import StoredLetter
from bridge.deadletters.recorder.batch_writer import ReadRecord, RecordBatch, RecordedPartition
from bridge.deadletters.recorder.start_position import StartPosition
from bridge.errors import ConsumerFailed
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.kafka.clients import (
    Consumer,
    KafkaError,
    KafkaException,
    Record,
    TopicPartition,
    consumer_client,
    explain_error,
    learn_topics,
)
from bridge.kafka.partition_offsets import cached_first_and_end
from bridge.settings import Settings
from lossless.background_thread import start_thread

logger = logging.getLogger(__name__)

#: Most records of one turn, and of one transaction; and the approximate most bytes of them.
TURN: Final = 1_000
BYTES: Final = 8_000_000
#: Most records that are read and not in a transaction yet; beyond that, reading pauses.
HELD: Final = 4 * TURN


def name_recorder_group(settings: Settings) -> str:
    """Return the consumer group of a group's recorders."""
    return f"{settings.group}.recorder"


class DeadLetterConsumer:
    """The consumer of dead-letter topics, a member of the group `{group}.recorder`.

    Only one thread may use the consumer.

    Parameters:
        on_error: called with errors of librdkafka, which recovers by itself.

    Attributes:
        partitions: the partitions that are read.
        unbegun: assigned partitions without a known start position.
        went_back: those of `unbegun` whose log was truncated.
        assigned: whether there was an assignment, even an empty one.
    """

    def __init__(self, settings: Settings, on_error: Callable[[KafkaError], None]) -> None:
        self.partitions: dict[Place, RecordedPartition] = {}
        self.unbegun: set[Place] = set()
        self.went_back: set[Place] = set()
        self.assigned = False
        self._topics: frozenset[str] = frozenset()
        self._strange_topics: set[str] = set()
        self._paused = False
        self.consumer: Consumer = consumer_client(
            settings.kafka, name_recorder_group(settings), error_cb=on_error, on_commit=_on_commit
        )

    def subscribe(self, topics: Collection[str]) -> None:
        """Consume these topics; assigned ones continue meanwhile. Missing topics are waited for."""
        if topics and self._topics != frozenset(topics):
            if self._topics and (fault := learn_topics(self.consumer)):
                logger.debug("Kafka has not listed its topics before the subscription: %s", fault)
            self._topics = frozenset(topics)
            self.consumer.subscribe(
                sorted(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def poll(self, seconds: float) -> None:
        """Read at most `TURN` records; wait for the first.

        Raises:
            ConsumerFailed: Kafka's client cannot go on.
        """
        first = self.consumer.poll(seconds)
        if first is None:
            return
        now = time.time_ns() // 1_000_000
        # consume() waits for the full number, poll() for one record.
        for record in (first, *self.consumer.consume(TURN - 1, 0)):
            self._take_in(record, now)

    @property
    def full(self) -> bool:
        """Return whether reading must pause because too much is not written yet."""
        held = [each.size for partition in self.partitions.values() for each in partition.unwritten]
        return len(held) >= HELD or sum(held) >= 4 * BYTES

    def take(self) -> RecordBatch:
        """Return some of the read records for one transaction; empty if there are none."""
        parts, room = [], [TURN, BYTES]
        for partition in sorted(self.partitions.values(), key=lambda each: len(each.unwritten)):
            reads = list(_take_fitting(partition.unwritten, room))
            if reads:
                del partition.unwritten[: len(reads)]
                parts.append((partition, reads))
        return RecordBatch(parts)

    def put_back(self, batch: RecordBatch) -> None:
        """Put back a batch that was not written. Records of partitions that were revoked or restarted are dropped."""
        for partition, reads in batch.parts:
            partition.unwritten[:0] = reads

    def begin(self, beginning: StartPosition) -> bool:
        """Read on from a start position; return whether Kafka's client can already."""
        place = (beginning.log.topic, beginning.log.partition)
        if place not in self.unbegun:
            return True
        try:
            self.consumer.seek(TopicPartition(*place, beginning.at.next, leader_epoch=beginning.at.epoch))
        except KafkaException as error:
            logger.debug("%s-%d: Kafka's client cannot go to an offset yet: %s", *place, error)
            return False
        self.unbegun.discard(place)
        self.went_back.discard(place)
        at_place = self._position(place).offset <= beginning.at.next
        self.partitions[place] = RecordedPartition(beginning.log, beginning.at.next, beginning.at, at_place)
        if not self._paused:
            self.consumer.resume([TopicPartition(*place)])
        return True

    def begin_anew(self, logs: Collection[object]) -> None:
        """Find the start positions of the partitions with these logs again."""
        self._begin_anew([place for place, each in self.partitions.items() if each.log in logs])

    def _begin_anew(self, places: Iterable[Place]) -> None:
        again = [place for place in places if self.partitions.pop(place, None) is not None]
        if again:
            self.unbegun.update(again)
            self.consumer.pause([TopicPartition(*place) for place in again])

    def pause(self, wanted: bool) -> None:
        """Pause or resume reading."""
        if wanted != self._paused:
            self._paused = wanted
            places = [TopicPartition(*place) for place in self.partitions]
            (self.consumer.pause if wanted else self.consumer.resume)(places)

    def written(self, batch: RecordBatch, reached: Mapping[RecordedLog, RecordedPosition]) -> None:
        """Note that a batch was written, and commit to Kafka, for lag monitors only."""
        for partition, _ in batch.parts:
            partition.reached = reached[partition.log]
        ours = [partition for partition, _ in batch.parts if partition in self.partitions.values()]
        offsets = [TopicPartition(each.log.topic, each.log.partition, each.reached.next) for each in ours]
        try:
            if offsets:
                self.consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            logger.debug("Kafka has not taken the commit: %s", error)

    def read_to(self, place: Place, end: int) -> bool:
        """Return whether all records below an offset were read."""
        partition = self.partitions.get(place)
        return partition is not None and partition.next >= end

    def pass_marks(self) -> None:
        """Note that Kafka's client has passed transaction marks and aborted records."""
        for stands in self.consumer.position([TopicPartition(*place) for place in self.partitions]):
            partition = self.partitions[stands.topic, stands.partition]
            if partition.at_place and stands.offset > partition.next:
                epoch: Any = stands.leader_epoch
                partition.next = stands.offset
                marks = ReadRecord(
                    partition.log, stands.offset - 1, -1 if epoch is None else int(epoch), None, is_mark=True
                )
                partition.unwritten.append(marks)

    def lag(self) -> dict[Place, int]:
        """Return how many records of each partition are not recorded, by its last known end: without a request."""
        ends = {place: self._watermarks(place)[1] for place in self.partitions}
        return {place: end - self.partitions[place].reached.next for place, end in ends.items() if end >= 0}

    @property
    def is_written(self) -> bool:
        """Return whether all that was read is in a batch."""
        return not any(partition.unwritten for partition in self.partitions.values())

    @property
    def logs(self) -> list[RecordedLog]:
        """Return the logs that are read."""
        return [partition.log for partition in self.partitions.values()]

    def close(self, within: float) -> None:
        """Leave the group. The client's own close() waits for Kafka without limit."""
        if not start_thread("leaving", self.consumer.close).stop(within):
            logger.warning("Kafka did not answer to the leaving; the group notices after the session timeout.")

    def _take_in(self, record: Record, now: int) -> None:
        if (error := record.error()) is not None:
            _report_error(error)
            return
        place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
        # The revoke callback runs inside poll(): earlier records are another recorder's now.
        partition = self.partitions.get(place)
        if partition is None:
            return
        if offset < partition.next:
            self.went_back.add(place)
            self._begin_anew([place])
            return
        missed = self._missed(place, partition.next, offset) if offset > partition.next else 0
        partition.next, partition.at_place = offset + 1, True
        partition.unwritten.append(self._read(partition.log, record, now)._replace(missed=missed))

    def _read(self, log: RecordedLog, record: Record, now: int) -> ReadRecord:
        epoch: Any = record.leader_epoch()
        found = parse_letter(record, log.topic_id, now)
        whose = found.identity.consumer_group
        wanted = log.consumer_group in ("", whose) or found.kind.origin != OURS
        if not wanted:
            self._warn_of_stranger(log.topic, whose)
        return ReadRecord(
            log,
            record.offset() or 0,
            -1 if epoch is None else int(epoch),
            found if wanted else None,
            _measure_letter(found) if wanted else 200,
        )

    def _warn_of_stranger(self, topic: str, group: str) -> None:
        if topic not in self._strange_topics:
            self._strange_topics.add(topic)
            logger.warning(
                "topic %r holds letters of another group too (%r): they are left to that group's recorder. "
                "`bridge deadletters record --topics %s` records everybody's.",
                topic,
                group,
                topic,
            )

    def _missed(self, place: Place, expected: int, offset: int) -> int:
        """Return how many records before this one Kafka has dropped by retention; other gaps are no records, or were
        compacted.
        """
        missed = max(0, min(self._watermarks(place)[0], offset) - expected)
        if missed:
            logger.error(
                "%s-%d: Kafka's retention dropped %s before offset %d unrecorded.",
                *place,
                format_count(missed, "record"),
                expected + missed,
            )
        return missed

    def _position(self, place: Place) -> TopicPartition:
        """Return the position of Kafka's client; below 0 before its first record."""
        found: TopicPartition
        (found,) = self.consumer.position([TopicPartition(*place)])
        return found

    def _watermarks(self, place: Place) -> tuple[int, int]:
        try:
            return cached_first_and_end(self.consumer.get_watermark_offsets(TopicPartition(*place), cached=True))
        except KafkaException:
            return -1, -1

    # Called by Kafka's client inside poll()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = True
        # Paused at any offset: the database decides the start position, and a seek follows.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        consumer.pause(partitions)
        self.unbegun.update((p.topic, p.partition) for p in partitions)
        if partitions:
            logger.info("assigned: %s", _list_partitions(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions)
        consumer.incremental_unassign(partitions)
        if partitions:
            logger.info("revoked: %s", _list_partitions(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("the consumer group continued without this recorder: its partitions are reassigned, or gone.")
        self._on_revoke(consumer, partitions)

    def _give_up(self, partitions: Iterable[TopicPartition]) -> None:
        for p in partitions:
            self.partitions.pop((p.topic, p.partition), None)
            self.unbegun.discard((p.topic, p.partition))
            self.went_back.discard((p.topic, p.partition))


def _take_fitting(reads: Iterable[ReadRecord], room: list[int]) -> Iterator[ReadRecord]:
    """Yield the first records for which there is room; one in any case if the batch is empty.

    Parameters:
        room: the records and the bytes that there is room for; it is reduced.
    """
    for each in reads:
        if room[0] <= 0 or room[1] <= 0:
            return
        room[0] -= 1
        room[1] -= each.size
        yield each


def _measure_letter(letter: StoredLetter) -> int:
    headers = sum(len(name) + len(value or b"") + 200 for name, value in letter.headers)
    return 2_000 + len(letter.value or b"") + len(letter.key or b"") + 2 * len(letter.traceback) + headers


def _report_error(error: KafkaError) -> None:
    """Log or raise an error that librdkafka returned in place of a record."""
    # Such an error has only the code, without the mark of a fatal error.
    if error.fatal() or error.code() == KafkaError._FATAL:
        raise ConsumerFailed(f"Kafka's client cannot go on: {explain_error(error)}. Start the recorder again.")
    missing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._PARTITION_EOF)
    if error.code() not in missing:
        logger.warning("Kafka: %s", explain_error(error))


def _on_commit(error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
    if error is not None:
        logger.debug("Kafka has not taken the commit: %s", error)


def _list_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
