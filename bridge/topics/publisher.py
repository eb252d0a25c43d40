"""Writes dead letters to Kafka; returns after Kafka has acknowledged."""

import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.kafka import Fatal, KafkaError, KafkaException, Producer, Record, producer_client
from bridge.records.failure import Failure, cut
from bridge.records.message import Dead, Delivery
from bridge.settings import Settings
from bridge.topics.letters import Letter, recent_letters, text_of
from bridge.topics.names import TopicNames

logger = logging.getLogger(__name__)

#: Seconds to wait for Kafka's acknowledgement; more than librdkafka's own `message.timeout.ms`,
#: so that a record is either acknowledged or given up by it, never still in flight.
ACKNOWLEDGED_WITHIN = 20.0

RecordHeaders = list[tuple[str, str | bytes | None]]


class Publisher:
    """A producer of one process, made on first use.

    librdkafka's threads do not cross a fork: a producer that is inherited takes records and never sends
    them (confluent-kafka-python issue 1122), so each process has its own, found by its process id.
    """

    _of_process: ClassVar[tuple[int, "Publisher"] | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, chosen: Settings) -> None:
        self._settings = chosen
        self._producer: Producer = producer_client(chosen.kafka)
        self._partitions: dict[str, int] = {}
        self._letters: dict[tuple[str, str, int], tuple[float, set[Letter]]] = {}

    @classmethod
    def of(cls, app: Celery) -> "Publisher":
        """The publisher of this process, with the settings of that app."""
        with cls._lock:
            if cls._of_process is None or cls._of_process[0] != os.getpid():
                cls._of_process = (os.getpid(), cls(settings.load(app, os.environ)))
            return cls._of_process[1]

    def dead_letter(self, delivery: Delivery, dead: Dead, group: str) -> None:
        """Publish a dead letter and wait until every in-sync replica has it.

        A record too large for the topic goes without its traceback, then without its message.

        Parameters:
            group: the consumer group that handed the delivery off, whatever this process's own environment says.

        Raises:
            PublishFailed: Kafka did not acknowledge it; it may or may not be there.
        """
        chosen = self._settings.of_group(group)
        topic = TopicNames.of(chosen).dead_letters(delivery.message.topic)
        for failure in _shorter_and_shorter(dead.failure):
            headers = dead_letter_headers(delivery, Dead(dead.reason, failure), chosen.group)
            try:
                self._publish(topic, delivery, headers)
                return
            except RecordTooLarge as error:
                refused = error
        raise refused

    def has_dead_letter(self, delivery: Delivery, group: str, written_before: float | None = None) -> bool:
        """Whether Kafka has this delivery's dead letter already: a killed process may have written it, and no more.

        Parameters:
            group: the consumer group that handed it off.
            written_before: Unix time; if only an older letter is looked for, what was read since is not read again.

        Raises:
            PublishFailed: Kafka does not tell.
        """
        message = delivery.message
        place = (group, message.topic, message.partition)
        read_at, found = self._letters.get(place, (0.0, set()))
        # A second for clocks that are read in whole seconds.
        if written_before is None or read_at <= written_before + 1:
            read_at = time.time()
            try:
                found = recent_letters(self._settings.of_group(group), message.topic, message.partition)
            except KafkaUnavailable as error:
                raise PublishFailed(f"{delivery}: {error}") from None
            self._letters[place] = (read_at, found)
        return any(letter in found for letter in Letter.those_of(delivery))

    def _publish(self, topic: str, delivery: Delivery, headers: RecordHeaders) -> None:
        outcome: list[KafkaError | None] = []

        def acknowledged(error: KafkaError | None, record: Record) -> None:
            outcome.append(error)

        message = delivery.message
        try:
            self._producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=headers,
                partition=self._partition(topic, message.partition),
                on_delivery=acknowledged,
            )
        except KafkaException as error:
            self._renew_if_fatal(error.args[0])
            raise _failed(topic, delivery, error.args[0]) from None
        except BufferError:
            raise PublishFailed(f"{delivery}: the producer's queue is full: Kafka has not answered for long.") from None
        # flush() returns 0 although all records failed: only the callback says what became of this one.
        fatal = self._flush()
        for answer in (fatal, *outcome):
            self._renew_if_fatal(answer)
        if fatal is not None and not outcome:
            raise _failed(topic, delivery, fatal)
        if not outcome:
            raise PublishFailed(f"{delivery}: no answer from Kafka for {topic!r} in {ACKNOWLEDGED_WITHIN:g} s.")
        if outcome[0] is not None:
            self._partitions.pop(topic, None)
            raise _failed(topic, delivery, outcome[0])

    def _flush(self) -> KafkaError | None:
        """Wait for the acknowledgement; return why the producer cannot go on, if so."""
        try:
            with Fatal() as fatal:
                self._producer.flush(ACKNOWLEDGED_WITHIN)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        except SystemError as error:
            # The client called back with its own exception set: that is the cause, and what it called said nothing.
            if not isinstance(error.__cause__, KafkaException):
                raise
            return error.__cause__.args[0]  # type: ignore[no-any-return]
        return fatal.error

    def _renew_if_fatal(self, error: KafkaError | None) -> None:
        """Nothing gets out of an idempotent producer any more after a fatal error: a log that lost its end is one."""
        if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
            logger.error("the producer cannot go on and is made anew: %s", error.str())
            self._producer = producer_client(self._settings.kafka)

    def _partition(self, topic: str, source: int) -> int:
        """The source's partition number where the topic has it, else one that is always the same."""
        if topic not in self._partitions:
            with suppress(KafkaException):
                known = self._producer.list_topics(topic, timeout=5).topics[topic]
                if known.error is None and known.partitions:
                    self._partitions[topic] = len(known.partitions)
        count = self._partitions.get(topic)
        # Without metadata the partitioner decides; the record then waits in librdkafka for the topic.
        return source % count if count else -1


def dead_letter_headers(delivery: Delivery, dead: Dead, group: str) -> RecordHeaders:
    """The producer's headers, and behind them ours, as ASCII text."""
    failure = dead.failure
    ours = {
        "origin_topic": delivery.message.topic,
        "origin_partition": str(delivery.message.partition),
        "origin_offset": str(delivery.message.offset),
        "origin_timestamp": text_of(delivery.message.timestamp),
        "origin_topic_id": delivery.topic_id,
        "handler": delivery.handler,
        "bridge_group": group,
        "attempts": str(delivery.attempts),
        "reason": dead.reason,
        "error_class": failure.error_class,
        "error_message": failure.error_message,
        "error_traceback": failure.error_traceback,
        "first_failed_at": str(delivery.first_failed_at or failure.failed_at),
        "failed_at": str(failure.failed_at),
    }
    return [*delivery.message.headers, *_ascii(ours)]


def _ascii(headers: Mapping[str, str]) -> RecordHeaders:
    return [(name, value.encode("ascii", "backslashreplace")) for name, value in headers.items()]


def _shorter_and_shorter(failure: Failure) -> tuple[Failure, ...]:
    short = cut(failure.error_message, 200)
    return (
        failure,
        Failure(failure.error_class, short, "", failure.failed_at),
        Failure(failure.error_class, "", "", failure.failed_at),
    )


def _failed(topic: str, delivery: Delivery, error: KafkaError) -> PublishFailed:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        size = len(delivery.message.value or b"") + len(delivery.message.key or b"")
        return RecordTooLarge(
            f"{delivery}: its dead letter ({size} bytes of key and value) is larger than {topic!r} takes: "
            "raise that topic's max.message.bytes."
        )
    return PublishFailed(f"{delivery}: {topic!r} did not take its dead letter: {error.str()}.")
