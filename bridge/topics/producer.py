"""A producer of which each record is acknowledged, refused or given up when `publish` returns."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bridge.errors import PublishFailed, RecordTooLarge
from bridge.kafka import Fatal, KafkaError, KafkaException, Producer, Record, producer_client
from bridge.records.added import RecordHeaders
from bridge.records.message import Delivery
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds to wait for Kafka's acknowledgement; more than librdkafka's own `message.timeout.ms`,
#: so that a record is either acknowledged or given up by it, never still in flight.
ACKNOWLEDGED_WITHIN: Final = 20.0


class AcknowledgedProducer:
    """Publishes what is to become of a delivery. It must not cross a fork (bridge.kafka.producer_client)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: Producer = producer_client(settings.kafka)
        self._partitions: dict[str, int] = {}

    def publish(self, topic: str, delivery: Delivery, headers: RecordHeaders) -> None:
        """Write a delivery's key and value under these headers, and wait until every in-sync replica has them.

        Raises:
            RecordTooLarge: the topic does not take a record of this size.
            PublishFailed: Kafka did not acknowledge it; it may or may not be there.
        """
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
        self._check(topic, delivery, [fatal, *outcome] if fatal is not None else outcome)

    def _check(self, topic: str, delivery: Delivery, answers: Sequence[KafkaError | None]) -> None:
        """What the client said of itself, and of the record if it said so: the last counts."""
        for answer in answers:
            self._renew_if_fatal(answer)
        if not answers:
            raise PublishFailed(f"{delivery}: no answer from Kafka for {topic!r} in {ACKNOWLEDGED_WITHIN:g} s.")
        if answers[-1] is not None:
            self._partitions.pop(topic, None)
            raise _failed(topic, delivery, answers[-1])

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


def _failed(topic: str, delivery: Delivery, error: KafkaError) -> PublishFailed:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        size = len(delivery.message.value or b"") + len(delivery.message.key or b"")
        return RecordTooLarge(
            f"{delivery}: its dead letter ({size} bytes of key and value) is larger than {topic!r} takes: "
            "raise that topic's max.message.bytes."
        )
    return PublishFailed(f"{delivery}: {topic!r} did not take its dead letter: {error.str()}.")
