"""The recorder: it writes each record of the dead-letter topics into the database once, until it is stopped."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from bridge.deadletters.db.database import Database
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.recorder.background_duties import DUTIES, Duties, Duty, Outage, SideTask
from bridge.deadletters.recorder.batch_writer import BatchWriter, RecordBatch, WrittenBatch
from bridge.deadletters.recorder.dead_letter_consumer import DeadLetterConsumer
from bridge.deadletters.recorder.dead_letter_metrics import DeadLetterMetrics, RecorderMetrics
from bridge.deadletters.recorder.recorder_heartbeat import RecorderMembership
from bridge.deadletters.recorder.start_position import StartFinder, StartSearch
from bridge.errors import DeskUnavailable, KafkaUnavailable, RecordedByAnother
from bridge.formats.delivery_identity import Place
from bridge.jobs.timetable import Timetable
from bridge.kafka.clients import KafkaError, explain_error
from bridge.kafka.topic_names import TopicNames
from bridge.readiness import decide_readiness, is_alive

logger = logging.getLogger(__name__)

#: Seconds that a poll waits for a record; and while a transaction is in flight.
POLL, POLL_BUSY = 0.1, 0.01
#: Seconds to wait for a transaction without polling Kafka, before its partitions are paused.
PATIENCE: Final = 2.0
#: Seconds between two checks for recreated topics, of the database, and of the lag.
LOOK_EVERY: Final = 10.0
TELL_EVERY: Final = 1.0
#: Seconds for the last transaction and for leaving the group at the end.
END_WITHIN: Final = 5.0
#: Seconds to wait for a server that does not answer, with `--once`.
GIVE_UP_AFTER: Final = 15.0
#: Seconds after which a silent database is reported as unavailable: it may be frozen, or the network drops its
#: answers. deadletters/db/postgresql_engine.py has the timeout of the connection.
HANGS_AFTER: Final = 10.0


class BackgroundWriter:
    """The writing of batches in a thread of its own, one at a time; one that was not written is tried again.

    Attributes:
        outage: of the database.
    """

    def __init__(self, database: Database, largest_value: int, metrics: RecorderMetrics) -> None:
        self.outage = Outage("nothing is recorded", "letters are recorded again")
        self._writer, self._metrics = BatchWriter(database, largest_value), metrics
        self._name = f"The dead letters' database ({database.name}, DEADLETTERS_DATABASE_URL)"
        self._task: SideTask[WrittenBatch] = SideTask("writing")
        self._batch = RecordBatch([])

    @property
    def idle(self) -> bool:
        """Return whether no batch is in flight."""
        return self._task.idle

    def wait(self, seconds: float, patience: float) -> bool:
        """Wait for a batch in flight, for this time; return false at once if there is none, or for longer already."""
        waits = not self._task.idle and self._task.lasts < patience
        if waits:
            self._task.wait(seconds)
        return waits

    def begin(self, consumer: DeadLetterConsumer, asks: Callable[[], bool]) -> None:
        """Write what was read, if no batch is in flight.

        Parameters:
            asks: returns whether the database is asked even without records: else nothing detects an outage, on which
                plans and webhooks depend too.
        """
        if not self._task.idle or not self.outage.may_try:
            return
        self._batch = batch = consumer.take()
        # In an outage the partitions may be another recorder's by now: then no batch would end it.
        if batch.parts or self.outage.why is not None or asks():
            self._task.begin(lambda: self._writer.write(batch.reads, batch.reached))

    def finish(self, consumer: DeadLetterConsumer) -> None:
        """Note the result of a batch, if there is one; report a database that does not answer."""
        lasts = self._task.lasts
        if (done := self._task.taken()) is None:
            if lasts > HANGS_AFTER:
                why = f"{self._name} has not answered for {lasts:.0f} s: see whether it runs."
                self.outage.met(DeskUnavailable(why))
            return
        batch, self._batch = self._batch, RecordBatch([])
        try:
            written = done.result()
        except RecordedByAnother as error:
            self.outage.over()
            logger.info("%s: read anew from there.", error)
            consumer.put_back(batch)
            consumer.begin_anew(error.logs)
        except DeskUnavailable as error:
            self._metrics.failed.inc()
            self.outage.met(error)
            consumer.put_back(batch)
        else:
            self.outage.over()
            consumer.written(batch, written.reached)
            self._metrics.count(batch.reads, written)

    def end(self, consumer: DeadLetterConsumer, within: float) -> None:
        """Wait for the last batch, and tell Kafka."""
        self._task.wait(within)
        done = self._task.taken()
        if done is not None and done.exception() is None:
            consumer.written(self._batch, done.result().reached)


class Recorder:
    """The recorder of the dead letters of a group.

    In its handlers' topics it skips letters of other groups. Only `obstacles`, `alive` and `stop` may
    be called from other threads than `run`.

    Parameters:
        desk: its database need not answer yet.
        topics: dead-letter topics besides those of the handlers, of which all groups' letters are recorded.
        duties: its other periodic tasks.
        stays: whether it has a heartbeat in Redis, and is missed without one.

    Attributes:
        topics: all recorded topics.
    """

    def __init__(
        self,
        desk: DeadLetterService,
        topics: Collection[str] = (),
        duties: Sequence[Duty] = DUTIES,
        stays: bool = False,
    ) -> None:
        names = TopicNames.from_settings(desk.settings)
        self.topics = {names.dead_letters(topic) for topic in desk.routes.topics} | set(topics)
        self._settings = desk.settings
        self.metrics = RecorderMetrics()
        self.metrics.registry.register(DeadLetterMetrics(desk.database))
        # Duties, webhooks and plans may use all other connections at once.
        self._own = desk.database.apart()
        self._presence = RecorderMembership(desk.settings, self.alive, stays)
        self._finder = StartFinder(desk.settings, self._own, topics, self._presence)
        self._starts = StartSearch(self._finder)
        self._writer = BackgroundWriter(self._own, desk.settings.file.kafka_deadletters_largest_value, self.metrics)
        self._kafka = Outage("nothing is read", "Kafka answers again")
        self._timetable = Timetable(time.monotonic)
        self._duties = Duties(desk, duties)
        self._announcing = Duties(desk, (self._presence.duty,) if stays else ())
        self._stopping = threading.Event()
        self._turned = time.monotonic()
        self._consumer: DeadLetterConsumer | None = None

    # From any thread

    @property
    def registry(self) -> CollectorRegistry:
        """Return the registry of its metrics."""
        return self.metrics.registry

    def stop(self) -> None:
        """Finish the transaction in flight, leave the group, and return from `run`."""
        self._stopping.set()

    def alive(self) -> bool:
        """Return whether the loop runs."""
        return is_alive(self._turned, time.monotonic())

    def obstacles(self) -> list[str]:
        """Return why nothing is recorded, in sentences; empty if all is well."""
        outages = (self._kafka, self._starts.outage, self._writer.outage)
        found = [outage.why for outage in outages if outage.why is not None]
        if not found and not (self._starts.prepared and self._consumer is not None and self._consumer.assigned):
            found.append(
                f"joining the consumer group, or none of its topics exists yet: {', '.join(sorted(self.topics))}"
            )
        return found

    # The loop

    def run(self, ends: Mapping[Place, int] | None = None) -> None:
        """Record until `stop` is called; outages of Kafka and the database of any length are survived.

        Parameters:
            ends: record up to these offsets, and return; then outages are not waited for.

        Raises:
            DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere: this database is not for this recorder.
            ConsumerFailed: Kafka's client cannot go on.
            DeskUnavailable, KafkaUnavailable: with `ends`, what did not answer.
        """
        self._announcing.start()
        self._consumer = consumer = DeadLetterConsumer(self._settings, self._on_error)
        consumer.subscribe(self.topics)
        left = ends
        try:
            while not self._stopping.is_set():
                self._turned = time.monotonic()
                if self._presence.refused is not None:
                    raise self._presence.refused
                self._turn(consumer)
                if left is not None and not (left := self._find_unrecorded(consumer, left)):
                    return
        finally:
            self._leave(consumer)

    def _turn(self, consumer: DeadLetterConsumer) -> None:
        self._begin_partitions(consumer)
        self._writer.finish(consumer)
        self._starts.begin(consumer.unbegun, consumer.went_back)
        self._writer.begin(consumer, lambda: self._starts.prepared and self._timetable.due("ask", LOOK_EVERY))
        self._read(consumer)
        self._tell(consumer)

    def _begin_partitions(self, consumer: DeadLetterConsumer) -> None:
        """Begin partitions whose start position was found; the others are asked for again."""
        first = not self._starts.prepared
        if (found := self._starts.take()) is None:
            return
        if first:
            # A topic stays recorded even if its handler is gone.
            self.topics |= set(found.topics)
            consumer.subscribe(self.topics)
            self._duties.start()
        for beginning in found.beginnings:
            if beginning.step is not None:
                self.metrics.count_missed(beginning.log, beginning.step.missed)
            consumer.begin(beginning)

    def _read(self, consumer: DeadLetterConsumer) -> None:
        waits = self._writer.outage.why is not None
        if not waits and not consumer.full:
            consumer.pause(False)
            consumer.poll(POLL if self._writer.idle else POLL_BUSY)
        # Pausing would discard prefetched records.
        elif waits or not self._writer.wait(POLL, PATIENCE):
            consumer.pause(True)
            # This serves rebalances and keeps the membership alive.
            consumer.poll(POLL)

    def _tell(self, consumer: DeadLetterConsumer) -> None:
        if self._timetable.due("topics", TELL_EVERY if self._kafka.why else LOOK_EVERY):
            if self._finder.answers():
                self._kafka.over()
            consumer.begin_anew(self._finder.made_anew(consumer.logs))
        if self._timetable.due("tell", TELL_EVERY):
            consumer.pass_marks()
            self.metrics.ready.set(1 if decide_readiness(self.obstacles()).ready else 0)
            self.metrics.expect((*consumer.partitions, *consumer.unbegun))
            self.metrics.show_lag(consumer.lag())

    def _on_error(self, error: KafkaError) -> None:
        """Note an error that Kafka's client reports inside poll()."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._kafka.met(KafkaUnavailable(f"Kafka does not answer: {explain_error(error)}."))
        elif error.code() != KafkaError._TRANSPORT:
            logger.warning("Kafka: %s", explain_error(error))

    # The end

    def _find_unrecorded(self, consumer: DeadLetterConsumer, ends: Mapping[Place, int]) -> Mapping[Place, int]:
        """Return those of these ends up to which not all records are recorded.

        Raises:
            DeskUnavailable, KafkaUnavailable: a server did not answer for too long.
        """
        for outage in (self._kafka, self._starts.outage, self._writer.outage):
            if outage.lasts > GIVE_UP_AFTER:
                raise (DeskUnavailable if outage is self._writer.outage else KafkaUnavailable)(outage.why)
        consumer.pass_marks()
        if not self._starts.prepared or not self._writer.idle or not consumer.is_written:
            return ends
        done = {place for place, end in ends.items() if consumer.read_to(place, end)}
        if ends.keys() - done and self._timetable.due("over", TELL_EVERY):
            # Another recorder of the group may have the partition.
            done |= self._finder.recorded(ends)
        return {place: end for place, end in ends.items() if place not in done}

    def _leave(self, consumer: DeadLetterConsumer) -> None:
        self._announcing.stop()
        self._duties.stop()
        self._writer.end(consumer, END_WITHIN)
        self._own.close()
        consumer.close(END_WITHIN)
