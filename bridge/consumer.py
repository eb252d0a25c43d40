"""The loop: poll → hand off → commit."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from celery import Celery

from bridge import pressure
from bridge.catalog import Catalog
from bridge.errors import HandoffFailed, KafkaUnavailable
from bridge.handoff import Handoff
from bridge.kafka import Consumer, KafkaError, KafkaException, Record, TopicPartition, consumer_client
from bridge.message import Delivery, Message
from bridge.metrics import BridgeMetrics, Place
from bridge.routes import Routes
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Most records of one turn; what is held while the broker is away is never more.
TURN: Final = 1_000
#: Seconds between two commits, two looks at the queues, two looks at Kafka.
COMMIT_EVERY: Final = 1.0
QUEUES_EVERY: Final = 0.5
KAFKA_EVERY: Final = 5.0
#: Seconds between two tries to hand off: first, and at most.
RETRY_AFTER: Final = (0.2, 5.0)
#: Seconds that leaving the group may take when Kafka does not answer.
LEAVE_WITHIN: Final = 5.0
#: Seconds without a turn after which the loop is held to be stuck.
STUCK_AFTER: Final = 60.0

HANDOFF_BLOCKED: Final = "handoff"


class Bridge:
    """Consumes the topics that handlers name, hands each delivery off, commits what the broker has confirmed.

    One thread does all that touches Kafka's consumer: librdkafka gives no promises for pausing and
    rebalancing beside a `consume()`. Only `obstacles`, `alive` and `stop` may be called from others.
    """

    def __init__(
        self, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._routes, self._clock = settings, routes, clock
        self.metrics = BridgeMetrics()
        self._handlers = {topic: tuple(handler.name for handler in routes.of(topic)) for topic in routes.topics}
        self._limits = pressure.Limits(settings.file.kafka_pause_above, settings.file.kafka_resume_below)
        self._handoff = Handoff(app)
        self._catalog = Catalog(settings, routes.topics)
        self._consumer: Consumer | None = None
        self._stopping = threading.Event()
        self._assigned: set[Place] = set()
        self._joined = False
        self._held: list[Record] = []
        self._held_since = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._blocked: str | None = None
        self._kafka_down: str | None = None
        self._long_queues: dict[str, str] = {}
        self._since_look = 0
        self._paused: dict[Place, str] = {}
        self._committed: dict[Place, int] = {}
        self._next = dict.fromkeys(("commit", "queues", "kafka"), 0.0)
        self._turned = clock()

    # From any thread

    def stop(self) -> None:
        """Finish the hand-off in flight, commit, leave the group, return from `run`."""
        self._stopping.set()

    def alive(self) -> bool:
        """Whether the loop turns."""
        return self._clock() - self._turned < STUCK_AFTER

    def obstacles(self) -> list[str]:
        """Why nothing is consumed, a sentence each; none if it is."""
        found = []
        if self._kafka_down:
            found.append(self._kafka_down)
        if self._blocked:
            found.append(f"deliveries cannot be handed off: {self._blocked}")
        missing = self._catalog.missing
        if missing and len(missing) == len(self._handlers):
            found.append(f"no topic to consume exists yet: {', '.join(sorted(missing))}")
        elif not self._joined and not self._kafka_down:
            found.append("joining the consumer group")
        return found

    # The loop

    def run(self) -> None:
        """Consume until `stop` is called; survives Kafka and the broker going away for any length of time."""
        self._wait_for_kafka()
        if not self._stopping.is_set():
            self._consumer = consumer_client(
                self._settings.kafka, self._settings.group, error_cb=self._on_error, on_commit=self._on_commit
            )
            self._consumer.subscribe(
                self._routes.topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
        while not self._stopping.is_set():
            self._turn()
        self._leave()

    def _wait_for_kafka(self) -> None:
        """Topics of ours are made before anything is consumed, so that a dead letter finds its topic."""
        while not self._stopping.is_set():
            self._turned = self._clock()
            if self._look_at_topics():
                return
            self._stopping.wait(1.0)

    def _turn(self) -> None:
        self._turned = self._clock()
        self._hold(self._poll())
        if self._held and self._clock() >= self._retry_at:
            self._hand_off()
        self._look_around()
        self._apply_pauses()
        self.metrics.ready.set(0 if self.obstacles() else 1)

    def _poll(self) -> list[Record]:
        assert self._consumer is not None
        if self._held:
            # Everything is paused: this serves rebalances and keeps the membership alive.
            record = self._consumer.poll(0.1)
            return [] if record is None else [record]
        first = self._consumer.poll(0.1)
        if first is None:
            return []
        # consume() waits for all it may take, poll() for one: so a quiet topic has no delay.
        return [first, *self._consumer.consume(TURN - 1, 0)]

    def _hold(self, records: list[Record]) -> None:
        good = [record for record in records if record.error() is None or self._report(record.error())]
        if not good:
            return
        if not self._held:
            self._held_since = self._clock()
        # The revoke callback runs inside poll(): what came before it is another bridge's now.
        self._held.extend(record for record in good if _place(record) in self._assigned)
        counts: dict[Place, int] = {}
        for record in good:
            counts[_place(record)] = counts.get(_place(record), 0) + 1
        for (topic, partition), count in counts.items():
            self.metrics.consumed.labels(topic, partition).inc(count)

    def _report(self, error: KafkaError | None) -> bool:
        """Say what librdkafka reports in place of a record; the answer is that there is no record."""
        assert error is not None
        if error.fatal():
            raise KafkaException(error)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._next["kafka"] = 0.0
        elif error.code() != KafkaError._PARTITION_EOF:
            logger.warning("Kafka: %s", error.str())
        return False

    def _hand_off(self) -> None:
        deliveries = [
            Delivery(message, name) for message in map(_message, self._held) for name in self._handlers[message.topic]
        ]
        try:
            self._handoff.publish(deliveries)
        except HandoffFailed as error:
            self._handoff_failed(error)
            return
        if self._blocked:
            logger.info("deliveries are handed off again.")
        self._blocked, self._failures, self._retry_at = None, 0, 0.0
        self.metrics.handoff_seconds.observe(self._clock() - self._held_since)
        self.metrics.count_handed_off(deliveries)
        self._since_look += len(deliveries)
        self._store(self._held)
        self._held = []

    def _handoff_failed(self, error: HandoffFailed) -> None:
        first, most = RETRY_AFTER
        self._retry_at = self._clock() + min(most, first * 2 ** min(self._failures, 10))
        self._failures += 1
        self.metrics.handoff_failures.inc()
        if self._blocked is None:
            logger.error("deliveries cannot be handed off, consumption pauses until they can: %s", error)
        self._blocked = str(error)

    def _store(self, records: Iterable[Record]) -> None:
        """Note what may be committed. An offset is stored after its hand-off is confirmed, never before."""
        assert self._consumer is not None
        after = {_place(record): (record.offset() or 0) + 1 for record in records}
        for (topic, partition), offset in after.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException as error:
                logger.warning("%s-%d is no longer ours: %s", topic, partition, error.args[0].str())

    def _look_around(self) -> None:
        now = self._clock()
        if now >= self._next["commit"]:
            self._next["commit"] = now + COMMIT_EVERY
            self._commit(asynchronous=True)
        if now >= self._next["queues"] or self._since_look >= TURN:
            self._next["queues"] = now + QUEUES_EVERY
            self._look_at_queues()
        if now >= self._next["kafka"]:
            self._next["kafka"] = now + KAFKA_EVERY
            if not self._catalog.complete or self._catalog.missing:
                self._look_at_topics()
            self._catalog.ask_ends(TopicPartition(*place) for place in self._assigned)
        self._look_at_ends()

    def _look_at_topics(self) -> bool:
        try:
            self._catalog.prepare()
        except KafkaUnavailable as error:
            self._kafka_is(str(error))
            return False
        self._kafka_is(None)
        return True

    def _look_at_ends(self) -> None:
        try:
            ends = self._catalog.ends()
        except KafkaUnavailable as error:
            self._kafka_is(str(error))
            return
        if ends is None:
            return
        self._kafka_is(None)
        for place, end in ends.items():
            if place in self._committed and place in self._assigned:
                self.metrics.lag.labels(*place).set(max(0, end - self._committed[place]))

    def _kafka_is(self, down: str | None) -> None:
        if down and not self._kafka_down:
            logger.error("%s The bridge waits for it.", down)
        elif self._kafka_down and not down:
            logger.info("Kafka answers again.")
        self._kafka_down = down

    def _look_at_queues(self) -> None:
        self._since_look = 0
        if self._blocked:
            return
        try:
            lengths = self._handoff.lengths(self._routes.queues)
        except HandoffFailed as error:
            logger.debug("queue lengths: %s", error)
            return
        found = pressure.too_long(lengths, self._limits, self._long_queues)
        for queue in sorted(found - self._long_queues.keys()):
            logger.warning("paused: %s", pressure.reason(queue, lengths[queue], self._limits))
        for queue in sorted(self._long_queues.keys() - found):
            logger.info("resumed: queue %r holds %d messages", queue, lengths[queue])
        self._long_queues = {queue: pressure.reason(queue, lengths[queue], self._limits) for queue in found}

    # Pausing

    def _apply_pauses(self) -> None:
        """Bring what is paused to what should be; what is newly assigned is paused or resumed too."""
        assert self._consumer is not None
        wanted = self._wanted_pauses()
        if wanted.keys() != self._paused.keys():
            pause = [TopicPartition(*place) for place in wanted.keys() - self._paused.keys()]
            resume = [
                TopicPartition(*place) for place in self._paused.keys() - wanted.keys() if place in self._assigned
            ]
            if pause:
                self._consumer.pause(pause)
            if resume:
                self._consumer.resume(resume)
        if wanted != self._paused:
            self.metrics.show_paused(wanted)
        self._paused = wanted

    def _wanted_pauses(self) -> dict[Place, str]:
        if self._held:
            return dict.fromkeys(self._assigned, HANDOFF_BLOCKED)
        wanted = {}
        for queue in self._long_queues:
            topics = self._routes.topics_into(queue)
            wanted.update({place: f"queue {queue}" for place in self._assigned if place[0] in topics})
        return wanted

    # Rebalances: called inside poll()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        self._joined = True
        self._kafka_is(None)
        self._assigned |= places
        # A pause outlives a revocation (librdkafka issue 1849): forget it, so that it is put or lifted anew.
        for place in places:
            self._paused.pop(place, None)
        consumer.incremental_assign(partitions)
        consumer.resume(partitions)
        self._next["kafka"] = 0.0
        if places:
            logger.info("assigned: %s", _shown(places))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions)
        self._commit(asynchronous=False)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("the group went on without this bridge; its partitions are another's now.")
        self._give_up(partitions)
        consumer.incremental_unassign(partitions)

    def _give_up(self, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        self._assigned -= places
        self._held = [record for record in self._held if _place(record) not in places]
        for place in places:
            self._paused.pop(place, None)
            self._committed.pop(place, None)
        self.metrics.forget(places)
        if places:
            logger.info("revoked: %s", _shown(places))

    # Commits

    def _commit(self, *, asynchronous: bool) -> None:
        """Commit what was stored; commit(message=) would move another bridge's offset (it is not fenced)."""
        assert self._consumer is not None
        try:
            answer = None if asynchronous else self._consumer.commit(asynchronous=False)
            if asynchronous:
                self._consumer.commit(asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                logger.warning("not committed, tried again: %s", error.args[0].str())
            return
        if answer is not None:
            self._on_commit(None, answer)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            logger.warning("not committed, tried again: %s", error.str())
            return
        for partition in partitions:
            if partition.error is None and partition.offset >= 0:
                self._kafka_is(None)
                self._committed[(partition.topic, partition.partition)] = partition.offset
                self.metrics.committed.labels(partition.topic, partition.partition).set(partition.offset)

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka goes on by itself after all but fatal errors."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._kafka_is(f"Kafka does not answer: {error.str()}.")
            self._next["kafka"] = 0.0
        elif error.code() != KafkaError._TRANSPORT:
            logger.warning("Kafka: %s", error.str())

    # The end

    def _leave(self) -> None:
        if self._consumer is not None:
            self._commit(asynchronous=False) if not self._kafka_down else None
            # close() waits for Kafka without limit.
            leaving = threading.Thread(target=self._consumer.close, daemon=True)
            leaving.start()
            leaving.join(LEAVE_WITHIN)
            if leaving.is_alive():
                logger.warning("Kafka did not answer to the leaving; the group notices after the session timeout.")
        self._handoff.close()


def _message(record: Record) -> Message:
    kind, timestamp = record.timestamp()
    return Message(
        topic=record.topic(),  # type: ignore[arg-type]
        partition=record.partition(),  # type: ignore[arg-type]
        offset=record.offset(),  # type: ignore[arg-type]
        key=record.key(),
        value=record.value(),
        headers=tuple(record.headers() or ()),  # type: ignore[arg-type]
        timestamp=timestamp if kind else None,
    )


def _place(record: Any) -> Place:
    return (record.topic(), record.partition())


def _shown(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))
