"""The publisher of dead letters, parked deliveries and handlers' messages; it returns after Kafka's acknowledgement."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.formats import dead_letter_record, retry_record
from bridge.formats.dead_letter_record import DeadLetterKey
from bridge.formats.delivery import Dead, Delivery
from bridge.formats.delivery_identity import Place
from bridge.formats.failure import Failure
from bridge.formats.outbox import MESSAGE_ID_HEADER, OutgoingMessage
from bridge.formats.record_headers import RecordHeaders
from bridge.kafka.acknowledged_producer import AcknowledgedProducer, OutgoingRecord
from bridge.kafka.dead_letter_reader import read_latest_of_partition
from bridge.kafka.partition_offsets import read_extents, starts_of_latest
from bridge.kafka.record_reader import read_records
from bridge.kafka.retry_topics import RetryTopics
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings
from bridge.telemetry.otel_sdk import find_spans

#: How many of the last records of a partition are searched for a record that may have just been written.
JUST_WRITTEN: Final = 10_000


class ParkRequest(NamedTuple):
    """A delivery to park in a retry topic.

    Attributes:
        delivery: as it is parked, with its new number.
        delay: of the topic, in seconds.
        due, until: as in bridge.formats.retry_record.
    """

    delivery: Delivery
    delay: int
    due: int
    until: int | None = None
    failure: Failure | None = None


#: The work, group and number of the delivery in a record of a retry topic.
ParkedKey = tuple[str, str, int]


class Publisher:
    """The publisher of one process, made on first use.

    librdkafka's threads do not cross a fork: an inherited producer takes records and never sends them
    (confluent-kafka-python issue 1122), so each process has its own, found by its process id.
    """

    _of_process: ClassVar[tuple[int, "Publisher"] | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._producer = AcknowledgedProducer(chosen)
        self._letters: dict[tuple[str, str, int], tuple[float, set[DeadLetterKey]]] = {}
        self._parked: dict[
            tuple[str, str, int, tuple[int, ...]], tuple[float, dict[ParkedKey, list[retry_record.RetryRecordPosition]]]
        ] = {}
        self._spans = find_spans()
        self.retries = RetryTopics(chosen)

    def _within_spans(self, sent: Sequence[tuple[str, Delivery]], group: str) -> AbstractContextManager[None]:
        """Return the context in which these deliveries go to their topics: spans, if traces are on."""
        return nullcontext() if self._spans is None else self._spans.sending(sent, group)

    @classmethod
    def get_publisher(cls, app: Celery) -> "Publisher":
        """Return the publisher of this process, with the settings of that app."""
        with cls._lock:
            if cls._of_process is None or cls._of_process[0] != os.getpid():
                cls._of_process = (os.getpid(), cls(settings.load(app, os.environ)))
            return cls._of_process[1]

    def dead_letter(self, delivery: Delivery, dead: Dead, group: str) -> None:
        """Publish a dead letter and wait until every in-sync replica has it.

        A record too large for the topic is sent without its traceback, then without its message.

        Parameters:
            group: the consumer group that handed the delivery off, whatever this process's own environment says.

        Raises:
            PublishFailed: Kafka did not acknowledge it; the dead letter may or may not be there.
        """
        chosen = self._settings.of_group(group)
        topic = TopicNames.from_settings(chosen).dead_letters(delivery.message.topic)
        with self._within_spans([(topic, delivery)], group):
            self._dead_letter(topic, delivery, dead, chosen.group)

    def _dead_letter(self, topic: str, delivery: Delivery, dead: Dead, group: str) -> None:
        for failure in dead_letter_record.shorten_failure(dead.failure):
            if failure is not dead.failure:
                delivery = delivery.changed(history=())
            headers = dead_letter_record.dead_letter_headers(delivery, replace(dead, failure=failure), group)
            try:
                self._producer.publish(topic, delivery, headers)
                return
            except RecordTooLarge as error:
                refused = error
        raise refused

    def has_dead_letter(self, delivery: Delivery, group: str, written_before: float | None = None) -> bool:
        """Return whether Kafka has this delivery's dead letter already: a killed process may have written it.

        Parameters:
            group: the consumer group that handed it off.
            written_before: Unix time; if only an older dead letter is wanted, an answer read since is reused.

        Raises:
            PublishFailed: Kafka did not answer.
        """
        message = delivery.message
        place = (group, message.topic, message.partition)
        read_at, letters = self._letters.get(place, (0.0, set()))
        # A second of tolerance for clocks that are read in whole seconds.
        if written_before is None or read_at <= written_before + 1:
            read_at = time.time()
            try:
                letters = self._recent(group, message.topic, message.partition)
            except KafkaUnavailable as error:
                raise PublishFailed(f"{delivery}: {error}") from None
            self._letters[place] = (read_at, letters)
        return any(whose in letters for whose in DeadLetterKey.those_of(delivery))

    def park(self, clones: Sequence[ParkRequest], group: str) -> list[PublishFailed | None]:
        """Park deliveries and wait until every in-sync replica has them; return for each why not, or `None`.

        A record too large for its topic is sent without the message of its failure.
        """
        topics = self._topics_of(clones, group)
        there = [(topics[clone.delivery.message.topic, clone.delay], clone.delivery) for clone in clones]
        with self._within_spans([(topic, delivery) for topic, delivery in there if isinstance(topic, str)], group):
            return self._park(clones, topics, group)

    def _park(
        self, clones: Sequence[ParkRequest], topics: Mapping[tuple[str, int], str | KafkaUnavailable], group: str
    ) -> list[PublishFailed | None]:
        failures: list[PublishFailed | None] = []
        letters: list[tuple[int, OutgoingRecord]] = []
        for at, clone in enumerate(clones):
            topic = topics[clone.delivery.message.topic, clone.delay]
            failures.append(
                PublishFailed(f"{clone.delivery}: {topic}") if isinstance(topic, KafkaUnavailable) else None
            )
            if isinstance(topic, str):
                letters.append((at, self._letter(clone, topic, group)))
        for said in (True, False):
            if not said:
                letters = [
                    (at, _shorten_retry(each, clones[at], group)) for at, each in letters if _is_large(failures[at])
                ]
            for (at, _), failed in zip(letters, self._producer.publish_all([each for _, each in letters]), strict=True):
                failures[at] = failed
        if any(failed is not None and not _is_large(failed) for failed in failures):
            self.retries.forget()
        return failures

    def _topics_of(self, clones: Sequence[ParkRequest], group: str) -> dict[tuple[str, int], str | KafkaUnavailable]:
        """Return the retry topic for each source and delay, or why there is none; an unavailable Kafka is
        asked once.
        """
        topics: dict[tuple[str, int], str | KafkaUnavailable] = {}
        away: KafkaUnavailable | None = None
        for clone in clones:
            source, delay = which = (clone.delivery.message.topic, clone.delay)
            if which in topics:
                continue
            try:
                topic = None if away is not None else self.retries.ready(source, delay, group)
            except KafkaUnavailable as error:
                topic, away = None, error
            topics[which] = topic or away or KafkaUnavailable(f"there is no retry topic of {delay} s for {source!r}.")
        return topics

    def _letter(self, clone: ParkRequest, topic: str, group: str) -> OutgoingRecord:
        headers = retry_record.retry_headers(
            clone.delivery, group, due=clone.due, until=clone.until, failure=clone.failure
        )
        partition = self.retries.partition(topic, clone.delivery.message.partition)
        return OutgoingRecord.from_delivery(topic, partition, clone.delivery, headers, "its retry")

    def send(self, outgoing: Sequence[tuple[str, OutgoingMessage]]) -> list[PublishFailed | None]:
        """Publish handlers' messages and wait until every in-sync replica has them; return for each why not, or `None`.

        Parameters:
            outgoing: each message with the delivery whose handler sends it.
        """
        return self._producer.publish_all([_outgoing_record(whose, message) for whose, message in outgoing])

    def parked_in(
        self, deliveries: Sequence[Delivery], delays: Sequence[int], group: str, written_before: float | None = None
    ) -> list[list[retry_record.RetryRecordPosition]]:
        """Return the records of retry topics that hold each delivery under its current number, committed or not.

        Parameters:
            deliveries: of one partition.
            delays: of the retry topics to search.

        Raises:
            PublishFailed: Kafka did not answer.
        """
        if not deliveries:
            return []
        message = deliveries[0].message
        place = (group, message.topic, message.partition, tuple(delays))
        read_at, parked = self._parked.get(place, (0.0, {}))
        if written_before is None or read_at <= written_before + 1:
            read_at = time.time()
            try:
                parked = self._recently_parked(group, message.topic, message.partition, delays)
            except KafkaUnavailable as error:
                raise PublishFailed(f"{deliveries[0]}: {error}") from None
            self._parked[place] = (read_at, parked)
        return [parked.get((delivery.identity, group, delivery.number), []) for delivery in deliveries]

    def _recently_parked(
        self, group: str, topic: str, partition: int, delays: Sequence[int]
    ) -> dict[ParkedKey, list[retry_record.RetryRecordPosition]]:
        names = self.retries.existing(topic, delays, group)
        there = read_extents(self._settings.of_group(group), names)
        starts: dict[Place, int] = {}
        for name in names:
            starts |= starts_of_latest([each for each in there if each.topic == name], partition, JUST_WRITTEN)
        ends = {each.place: each.end for each in there if each.place in starts}
        committed = {each.place: each.committed or 0 for each in there}
        parked: dict[ParkedKey, list[retry_record.RetryRecordPosition]] = {}
        for record in read_records(self._settings.of_group(group), starts, ends):
            if (held := retry_record.read_retry_key(record)) is not None:
                place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
                parked.setdefault(held, []).append(
                    retry_record.RetryRecordPosition(*place, offset, offset < committed[place])
                )
        return parked

    def _recent(self, group: str, topic: str, partition: int) -> set[DeadLetterKey]:
        """Return the keys of the latest dead letters of a partition."""
        letters = read_latest_of_partition(self._settings.of_group(group), topic, partition, JUST_WRITTEN)
        return {letter.whose for letter in letters}


def _outgoing_record(whose: str, outgoing: OutgoingMessage) -> OutgoingRecord:
    own: RecordHeaders = [(MESSAGE_ID_HEADER, outgoing.id.encode())] if outgoing.id else []
    what = "a message that its handler sends" if own else "its way on to the next handler"
    return OutgoingRecord(outgoing.topic, -1, outgoing.key, outgoing.value, [*outgoing.headers, *own], whose, what)


def _is_large(failed: PublishFailed | None) -> bool:
    return isinstance(failed, RecordTooLarge)


def _shorten_retry(letter: OutgoingRecord, clone: ParkRequest, group: str) -> OutgoingRecord:
    """Return the record with only the class of its failure, and without its history."""
    said = None if clone.failure is None else dead_letter_record.shorten_failure(clone.failure)[-1]
    bare = replace(clone.delivery, error=clone.delivery.error.partition(": ")[0], history=())
    return letter._replace(
        headers=retry_record.retry_headers(bare, group, due=clone.due, until=clone.until, failure=said)
    )
