"""A producer whose `publish` returns once each record is acknowledged, refused or given up."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from bridge.errors import NeverPublished, PublishFailed, RecordTooLarge, RefusedWithOthers
from bridge.formats.delivery import Delivery
from bridge.formats.record_headers import RecordHeaders
from bridge.kafka.clients import (
    FatalErrorCatcher,
    KafkaError,
    KafkaException,
    Producer,
    Record,
    explain_error,
    producer_client,
)
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds to wait for Kafka's acknowledgement; more than librdkafka's own `message.timeout.ms`, so that afterwards no
#: record is in flight.
ACKNOWLEDGED_WITHIN: Final = 20.0
#: Seconds for which the number of a topic's partitions is cached: partitions are added to a topic in use.
PARTITIONS_KNOWN_FOR: Final = 60.0


#: Permanent errors: no topic can have this name.
_NEVER: Final = (KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG)
#: Errors of a record that its topic refuses (a compacted one refuses records without a key). Kafka gives them to all
#: records of the batch.
_REFUSED: Final = (KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)


class OutgoingRecord(NamedTuple):
    """A record to write to Kafka.

    Attributes:
        partition: -1 if the partitioner chooses it.
        whose: the delivery that the record belongs to, for errors.
        what: the role of the record, for errors.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    whose: str
    what: str

    @classmethod
    def from_delivery(
        cls, topic: str, partition: int, delivery: Delivery, headers: RecordHeaders, what: str
    ) -> "OutgoingRecord":
        """Return a delivery's own key and value with these headers."""
        message = delivery.message
        return cls(topic, partition, message.key, message.value, headers, str(delivery), what)

    @property
    def size(self) -> int:
        """Return the bytes of its key and value."""
        return len(self.key or b"") + len(self.value or b"")


class RecordPosition(NamedTuple):
    """The position of a record that Kafka has acknowledged."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def from_record(cls, record: Record) -> "RecordPosition":
        """Return the position of an acknowledged record."""
        return cls(record.topic() or "", record.partition() or 0, record.offset() or 0)


class AcknowledgedProducer:
    """The producer of dead letters and parked deliveries. It must not cross a fork
    (bridge.kafka.clients.producer_client).
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._producer: Producer = producer_client(settings.kafka)
        #: By topic how many partitions it has, and when Kafka was asked.
        self._partitions: dict[str, tuple[int, float]] = {}

    def publish(self, topic: str, delivery: Delivery, headers: RecordHeaders) -> None:
        """Write a delivery's key and value with these headers, and wait until every in-sync replica has the record.

        Raises:
            RecordTooLarge: the record is too large for the topic.
            PublishFailed: Kafka did not acknowledge it; the record may or may not be there.
        """
        partition = self._partition(topic, delivery.message.partition)
        (failed,) = self.publish_all(
            [OutgoingRecord.from_delivery(topic, partition, delivery, headers, "its dead letter")]
        )
        if failed is not None:
            raise failed

    def publish_all(self, letters: Sequence[OutgoingRecord]) -> list[PublishFailed | None]:
        """Write records and wait for their acknowledgements; return for each why it failed, or `None`."""
        return self._publish_all(letters, [[] for _ in letters])

    def place_all(self, letters: Sequence[OutgoingRecord]) -> list[RecordPosition | PublishFailed]:
        """Write records and wait for their acknowledgements; return for each its position, or why it failed.

        If Kafka refuses a batch because of one record, that record is found: `NeverPublished`.
        """
        written: list[list[Record]] = [[] for _ in letters]
        failures = self._publish_all(letters, written)
        never = [NeverPublished(str(each)) if isinstance(each, RefusedWithOthers) else each for each in failures]
        return [
            RecordPosition.from_record(written[at][-1]) if failed is None else failed for at, failed in enumerate(never)
        ]

    def _publish_all(
        self, letters: Sequence[OutgoingRecord], written: list[list[Record]]
    ) -> list[PublishFailed | None]:
        failures = self._publish_together(letters, written)
        # Kafka refuses a batch of the client as a whole: one record is bad, or all are too large together.
        refused = [at for at, failed in enumerate(failures) if isinstance(failed, RefusedWithOthers | RecordTooLarge)]
        for some in _halves(refused) if len(letters) > 1 else ():
            again = self._publish_all([letters[at] for at in some], [written[at] for at in some])
            for at, answer in zip(some, again, strict=True):
                failures[at] = answer
        return failures

    def _publish_together(
        self, letters: Sequence[OutgoingRecord], written: list[list[Record]]
    ) -> list[PublishFailed | None]:
        answers: list[list[KafkaError | None]] = [[] for _ in letters]
        refused = [self._produce(letter, answers[at], written[at]) for at, letter in enumerate(letters)]
        # flush() returns 0 even if all records failed: only the callback knows the result of each.
        fatal = self._flush() if None in refused else None
        for answer in (fatal, *(answer for some in answers for answer in some)):
            if self._renew_if_fatal(answer):
                break
        return [
            why if why is not None else self._failure(letter, [*([] if fatal is None else [fatal]), *some])
            for letter, why, some in zip(letters, refused, answers, strict=True)
        ]

    def _produce(
        self, letter: OutgoingRecord, answers: list[KafkaError | None], written: list[Record]
    ) -> PublishFailed | None:
        def acknowledged(error: KafkaError | None, record: Record) -> None:
            answers.append(error)
            written.append(record)

        try:
            self._producer.produce(
                letter.topic,
                value=letter.value,
                key=letter.key,
                headers=letter.headers,
                partition=letter.partition,
                on_delivery=acknowledged,
            )
        except KafkaException as error:
            self._renew_if_fatal(error.args[0])
            return _publish_failure(letter, error.args[0])
        except BufferError:
            return PublishFailed(f"{letter.whose}: the producer's queue is full: Kafka has not responded for long.")
        return None

    def _failure(self, letter: OutgoingRecord, answers: Sequence[KafkaError | None]) -> PublishFailed | None:
        """Return the failure from the client's answers about itself and about the record; the last one counts."""
        if not answers:
            return PublishFailed(
                f"{letter.whose}: no answer from Kafka for {letter.topic!r} in {ACKNOWLEDGED_WITHIN:g} s."
            )
        if answers[-1] is None:
            return None
        self._partitions.pop(letter.topic, None)
        return _publish_failure(letter, answers[-1])

    def _flush(self) -> KafkaError | None:
        """Wait for the acknowledgements; return the error after which the producer cannot go on, if there is one."""
        try:
            with FatalErrorCatcher() as fatal:
                self._producer.flush(ACKNOWLEDGED_WITHIN)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        except SystemError as error:
            # A callback ran while the client's own exception was set: that is the cause, and the callback says nothing.
            if not isinstance(error.__cause__, KafkaException):
                raise
            return error.__cause__.args[0]  # type: ignore[no-any-return]
        return fatal.error

    def _renew_if_fatal(self, error: KafkaError | None) -> bool:
        """Replace the producer after a fatal error, such as a truncated log: an idempotent producer sends
        nothing any more.
        """
        if error is None or not (error.fatal() or error.code() == KafkaError._FATAL):
            return False
        logger.error("the producer failed and is replaced: %s", explain_error(error))
        self._producer = producer_client(self._settings.kafka)
        return True

    def _partition(self, topic: str, source: int) -> int:
        """Return the source's partition number if the topic has it, else a number that is always the same."""
        count, asked_at = self._partitions.get(topic, (0, float("-inf")))
        if self._clock() - asked_at >= PARTITIONS_KNOWN_FOR:
            with suppress(KafkaException):
                known = self._producer.list_topics(topic, timeout=5).topics[topic]
                if known.error is None and known.partitions:
                    count = len(known.partitions)
                    self._partitions[topic] = (count, self._clock())
        # Without metadata the partitioner decides; the record then waits in librdkafka for the topic.
        return source % count if count else -1


def _publish_failure(letter: OutgoingRecord, error: KafkaError) -> PublishFailed:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RecordTooLarge(
            f"{letter.whose}: {letter.what} ({letter.size} bytes of key and value) is larger than {letter.topic!r} "
            "takes: raise that topic's max.message.bytes."
        )
    if error.code() in _NEVER:
        return NeverPublished(f"{letter.whose}: {letter.topic!r} can never take {letter.what}: {explain_error(error)}.")
    failed = RefusedWithOthers if error.code() in _REFUSED else PublishFailed
    return failed(f"{letter.whose}: {letter.topic!r} did not take {letter.what}: {explain_error(error)}.")


def _halves(some: Sequence[int]) -> tuple[Sequence[int], ...]:
    middle = len(some) // 2
    return tuple(half for half in (some[:middle], some[middle:]) if half)
