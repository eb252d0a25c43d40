"""The recorder: it writes each record of the dead-letter topics into the database once, until it is stopped."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, values

from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.recorder.background_duties import DUTIES, Duties, Duty, SideTask
from bridge.deadletters.recorder.batch_writer import BatchWriter, TakenCounts, WrittenBatch
from bridge.deadletters.recorder.dead_letter_metrics import DeadLetterMetrics
from bridge.deadletters.recorder.intake import Intake, RecordBatch
from bridge.deadletters.recorder.recorder_heartbeat import RecorderMembership
from bridge.deadletters.recorder.start_position import StartFinder, StartsFound
from bridge.errors import (
    DeskDatabaseNewer,
    DeskOfAnotherKafka,
    DeskUnavailable,
    KafkaUnavailable,
    RecordedByAnother,
    RecordedElsewhere,
)
from bridge.formats.delivery_identity import Place
from bridge.jobs.timetable import Timetable
from bridge.kafka.clients import KafkaError, explain_error
from bridge.kafka.topic_names import TopicNames
from lossless.background_thread import start_thread
from lossless.backoff import Backoff, RetryTimer

logger = logging.getLogger(__name__)

#: Seconds between two tries.
RETRY_AFTER: Final = Backoff(first=0.2, most=10.0)
#: Seconds between two log lines about an outage.
SAY_OUTAGE_EVERY: Final = 60.0


class Outage:
    """The outage of one dependency.

    Parameters:
        waits: the effect, for the log: "nothing is recorded".
        well: the log line for its end.

    Attributes:
        why: a sentence; `None` without an outage.
    """

    def __init__(self, waits: str, well: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._waits, self._well, self._clock = waits, well, clock
        self.why: str | None = None
        self._timer = RetryTimer(RETRY_AFTER)
        self._since = self._said_at = 0.0

    def met(self, error: Exception) -> None:
        """Note that a try has failed."""
        now = self._clock()
        self._timer.note_failure(now)
        if self.why is None:
            self._since = now
        if self.why is None or now - self._said_at >= SAY_OUTAGE_EVERY:
            self._said_at = now
            logger.error("%s, for %.0f s now; it is tried again: %s", self._waits, now - self._since, error)
        self.why = str(error)

    def over(self) -> None:
        """It answers."""
        if self.why is not None:
            logger.info("%s, after %.0f s.", self._well, self._clock() - self._since)
        self.why = None
        self._timer.reset()

    @property
    def lasts(self) -> float:
        """Return the seconds since the outage began; 0 without one."""
        return 0.0 if self.why is None else self._clock() - self._since

    @property
    def may_try(self) -> bool:
        """Return whether the next try is due."""
        return self._timer.is_due(self._clock())


#: The labels of metrics by partition.
AT: Final = ("topic", "partition")


class RecorderMetrics:
    """The metrics of a recorder, in a registry of their own: a bridge with a recorder beside it shows both."""

    def __init__(self) -> None:
        # In memory, even if PROMETHEUS_MULTIPROC_DIR is set for workers: a recorder is one process.
        values.ValueClass = values.MutexValue
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        self.recorded = counter(
            "bridge_deadletters_recorded",
            "Records taken in, by what they told: new, died again, duplicate, read again, another group's, refused.",
            ["topic", "what"],
        )
        self.missed = counter(
            "bridge_deadletters_missed",
            "Records that Kafka dropped (its retention) before they were recorded.",
            AT,
        )
        self.failed = counter(
            "bridge_deadletters_database_errors", "Transactions of the recorder that the database did not do."
        )
        self.lag = gauge("bridge_deadletters_lag_records", "Records that Kafka has and the database has not yet.", AT)
        self.ready = gauge("bridge_deadletters_recorder_ready", "1 while the database takes what is read.")

    def show_lag(self, lag: Mapping[Place, int]) -> None:
        """Set the lag of the database in the partitions that this recorder has now."""
        self.lag.clear()
        for place, records in lag.items():
            self.lag.labels(*place).set(max(0, records))


#: Seconds that a poll waits for a record; and while a transaction is in flight.
POLL, POLL_BUSY = 0.1, 0.01
#: Seconds to wait for a transaction without polling Kafka, before its partitions are paused.
PATIENCE: Final = 2.0
#: Seconds between two checks for recreated topics, of the database, and of the lag.
LOOK_EVERY: Final = 10.0
TELL_EVERY: Final = 1.0
#: Seconds after which a silent database is reported as unavailable: it may be frozen, or the network drops its
#: answers. deadletters/db/postgresql_engine.py has the timeout of the connection.
HANGS_AFTER: Final = 10.0
#: Seconds for the last transaction and for leaving the group at the end.
END_WITHIN: Final = 5.0
#: Seconds to wait for a server that does not answer, with `--once`.
GIVE_UP_AFTER: Final = 15.0
#: Seconds without a turn after which the loop counts as stuck.
STUCK_AFTER: Final = 60.0


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
        taken: the counts since it began.
    """

    def __init__(
        self,
        desk: DeadLetterService,
        topics: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        duties: Sequence[Duty] = DUTIES,
        stays: bool = False,
    ) -> None:
        names = TopicNames.of(desk.settings)
        self.topics = {names.dead_letters(topic) for topic in desk.routes.topics} | set(topics)
        self._everybodys = frozenset(topics)
        self._desk, self._clock = desk, clock
        self.metrics, self.taken = RecorderMetrics(), TakenCounts()
        self.metrics.registry.register(DeadLetterMetrics(desk.database))
        # Duties, webhooks and plans may use all other connections at once.
        self._own = desk.database.apart()
        self._presence = RecorderMembership(desk.settings, self.alive, stays)
        self._looking = StartFinder(desk.settings, self._own, self._everybodys, self._presence)
        self._writing = BatchWriter(self._own, desk.settings.file.kafka_deadletters_largest_value)
        self._look: SideTask[StartsFound] = SideTask("looking")
        self._write: SideTask[WrittenBatch] = SideTask("writing")
        self._batch = RecordBatch([])
        self._begun_at = 0.0
        self._kafka = Outage("nothing is read", "Kafka answers again", clock)
        self._beginning = Outage("where to begin is not known", "where to begin is known", clock)
        self._database = Outage("nothing is recorded", "letters are recorded again", clock)
        self._troubles = (self._kafka, self._beginning, self._database)
        self._strangers: set[str] = set()
        self._timetable = Timetable(clock)
        self._duties = Duties(desk, duties)
        self._announcing = Duties(desk, (self._presence.duty,) if stays else ())
        self._prepared = False
        self._stopping = threading.Event()
        self._turned = clock()
        self._intake: Intake | None = None

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
        return self._clock() - self._turned < STUCK_AFTER

    def obstacles(self) -> list[str]:
        """Return why nothing is recorded, in sentences; empty if all is well."""
        found = [trouble.why for trouble in self._troubles if trouble.why is not None]
        if not found and not (self._prepared and self._intake is not None and self._intake.assigned):
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
        self._intake = intake = Intake(self._desk.settings, self._on_error)
        intake.subscribe(self.topics)
        left = None if ends is None else dict(ends)
        try:
            while not self._stopping.is_set():
                self._turned = self._clock()
                if self._presence.refused is not None:
                    raise self._presence.refused
                self._turn(intake)
                if left is not None and self._is_over(intake, left):
                    return
        finally:
            self._leave(intake)

    def _turn(self, intake: Intake) -> None:
        self._take_found(intake)
        self._take_written(intake)
        self._begin_look(intake)
        self._begin_write(intake)
        self._notice_silence()
        self._read(intake)
        self._tell(intake)

    def _read(self, intake: Intake) -> None:
        waits = self._database.why is not None
        if not waits and not intake.full:
            intake.pause(False)
            intake.poll(POLL if self._write.idle else POLL_BUSY)
        elif not waits and not self._write.idle and self._clock() - self._begun_at < PATIENCE:
            # Pausing would discard prefetched records.
            self._write.wait(POLL)
        else:
            intake.pause(True)
            # This serves rebalances and keeps the membership alive.
            intake.poll(POLL)

    # Where partitions begin

    def _begin_look(self, intake: Intake) -> None:
        if not self._look.idle:
            return
        if self._prepared and not intake.unbegun:
            # The partitions are another recorder's now: no answer will end the outage.
            self._beginning.over()
        elif self._beginning.may_try:
            places, went_back = frozenset(intake.unbegun), frozenset(intake.went_back)
            self._look.begin(lambda: self._looking.look(places, went_back))

    def _take_found(self, intake: Intake) -> None:
        """Begin partitions with a known start position; the others are asked for again."""
        done = self._look.taken()
        if done is None:
            return
        try:
            found = done.result()
            self._begin(intake, found)
            if found.untold:
                raise KafkaUnavailable(" ".join(found.untold))
        except (DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere):
            raise
        except (DeskUnavailable, KafkaUnavailable, RecordedByAnother) as error:
            self._beginning.met(error)
        else:
            self._beginning.over()

    def _begin(self, intake: Intake, found: StartsFound) -> None:
        if not self._prepared:
            self._prepared = True
            # A topic stays recorded even if its handler is gone.
            self.topics |= set(found.topics)
            intake.subscribe(self.topics)
            self._duties.start()
        for beginning in found.beginnings:
            if beginning.step is not None and beginning.step.missed:
                self.metrics.missed.labels(beginning.log.topic, beginning.log.partition).inc(beginning.step.missed)
            intake.begin(beginning)

    # What was read is written

    def _begin_write(self, intake: Intake) -> None:
        if not self._write.idle or not self._database.may_try:
            return
        self._batch = batch = intake.take()
        # The batch may be another recorder's now: then no write of it ends the outage.
        # Without records no write detects an outage, and plans and webhooks need the database too.
        if batch.parts or self._database.why is not None or (self._prepared and self._timetable.due("ask", LOOK_EVERY)):
            self._begun_at = self._clock()
            self._write.begin(lambda: self._writing.write(batch.reads, batch.reached))

    def _take_written(self, intake: Intake) -> None:
        """Process the result of a batch; one that was not written is tried again."""
        done = self._write.taken()
        if done is None:
            return
        batch, self._batch = self._batch, RecordBatch([])
        try:
            written = done.result()
        except RecordedByAnother as error:
            self._overtaken(intake, batch, error)
        except DeskUnavailable as error:
            self.metrics.failed.inc()
            self._database.met(error)
            intake.put_back(batch)
        else:
            self._database.over()
            intake.written(batch, written.reached)
            self._count(batch, written)
            self._tell_strangers(intake)

    def _notice_silence(self) -> None:
        """Report a database that does not answer, which would otherwise look well."""
        lasts = self._write.lasts
        if lasts > HANGS_AFTER:
            name = f"The dead letters' database ({self._own.name}, DEADLETTERS_DATABASE_URL)"
            self._database.met(DeskUnavailable(f"{name} has not answered for {lasts:.0f} s: see whether it runs."))

    def _count(self, batch: RecordBatch, written: WrittenBatch) -> None:
        self.taken.add((read.letter for read in batch.reads), written.counts)
        for (topic, what), count in written.counts.items():
            self.metrics.recorded.labels(topic, what).inc(count)
        for read in batch.reads:
            if read.missed:
                self.metrics.missed.labels(read.log.topic, read.log.partition).inc(read.missed)

    def _overtaken(self, intake: Intake, batch: RecordBatch, error: RecordedByAnother) -> None:
        self._database.over()
        logger.info("%s: read anew from there.", error)
        intake.put_back(batch)
        intake.begin_anew([place for place, each in intake.partitions.items() if each.log in error.logs])

    # Logs and metrics

    def _tell(self, intake: Intake) -> None:
        if self._timetable.due("topics", TELL_EVERY if self._kafka.why else LOOK_EVERY):
            if self._looking.answers():
                self._kafka.over()
            for place in self._looking.made_anew(partition.log for partition in intake.partitions.values()):
                intake.begin_anew([place])
        if self._timetable.due("tell", TELL_EVERY):
            intake.pass_marks()
            self.metrics.ready.set(0 if self.obstacles() else 1)
            ends = intake.ends()
            self.metrics.show_lag({place: end - intake.partitions[place].reached.next for place, end in ends.items()})

    def _tell_strangers(self, intake: Intake) -> None:
        for topic, group in intake.strangers.items():
            if topic not in self._strangers:
                self._strangers.add(topic)
                logger.warning(
                    "topic %r holds letters of another group too (%r): they are left to that group's recorder. "
                    "`bridge deadletters record --topics %s` records everybody's.",
                    topic,
                    group,
                    topic,
                )

    def _on_error(self, error: KafkaError) -> None:
        """Note an error that Kafka's client reports inside poll()."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._kafka.met(KafkaUnavailable(f"Kafka does not answer: {explain_error(error)}."))
        elif error.code() != KafkaError._TRANSPORT:
            logger.warning("Kafka: %s", explain_error(error))

    # The end

    def _is_over(self, intake: Intake, left: dict[Place, int]) -> bool:
        """Return whether all records up to these ends are recorded; completed partitions are removed from them.

        Raises:
            DeskUnavailable, KafkaUnavailable: a server did not answer for too long.
        """
        kinds = (KafkaUnavailable, KafkaUnavailable, DeskUnavailable)
        for trouble, kind in zip(self._troubles, kinds, strict=True):
            if trouble.lasts > GIVE_UP_AFTER:
                raise kind(trouble.why)
        intake.pass_marks()
        if not self._prepared or self._batch.parts or any(each.unwritten for each in intake.partitions.values()):
            return False
        done = {place for place, end in left.items() if intake.read_to(place, end)}
        if left.keys() - done and self._timetable.due("over", TELL_EVERY):
            # Another recorder of the group may have the partition.
            done |= self._looking.recorded(left)
        for place in done:
            del left[place]
        return not left

    def _leave(self, intake: Intake) -> None:
        self._announcing.stop()
        self._duties.stop()
        self._write.wait(END_WITHIN)
        done = self._write.taken()
        if done is not None and done.exception() is None:
            intake.written(self._batch, done.result().reached)
        self._own.close()
        # close() waits for Kafka without limit.
        if not start_thread("leaving", intake.consumer.close).stop(END_WITHIN):
            logger.warning("Kafka did not answer to the leaving; the group notices after the session timeout.")
