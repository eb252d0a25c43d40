"""The poll loop: each turn polls, hands off, runs the periodic jobs, and pauses or resumes partitions."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from bridge.consumer.rebalance import CommitOrRestart, RebalanceHandler
from bridge.consumer.subscription import StrangeRecordCounter, Subscription
from bridge.consumer.wiring import BridgeSetup, ConsumerParts
from bridge.dispatch.fate_sync import take_in_records
from bridge.errors import ConsumerFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.jobs.open_transactions import TransactionWatch
from bridge.kafka.clients import KafkaError, Record, TopicPartition, consumer_client, explain_error
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition

logger = logging.getLogger(__name__)

#: Most records of one turn, and most that are held while the broker is unavailable.
MOST_RECORDS: Final = 2_000
#: Seconds that a poll waits for a record: if something else waits for the next turn, and if nothing does.
BUSY, QUIET = 0.02, 0.1
#: The same while due retry records wait for their share: the few in the queue run soon.
SHARING: Final = 0.005


class PollLoop:
    """The poll loop, which consumes from its construction on.

    One thread does all that touches Kafka's consumer, but for a commit that is waited for
    (bridge.consumer.offset_commits): librdkafka gives no promises for a pause or rebalance beside a `consume()`.

    Raises:
        LedgerCannotFsync: a topic has handoff_durability="fsync", which this Redis cannot confirm.
    """

    def __init__(self, setup: BridgeSetup) -> None:
        self.parts = parts = ConsumerParts.build(setup)
        self._blockage, self._kafka, self._clock = setup.blockage, setup.kafka, setup.clock
        self._now = setup.now
        self._decisions, self._metrics, self._timetable = setup.decisions, setup.metrics, parts.timetable
        self._ledger, self._marks, self._commits, self._logs = parts.ledger, parts.marks, parts.commits, parts.logs
        self._assignment, self._reads, self._buffer = parts.assignment, parts.reads, parts.reads.buffer
        self._dispatch, self._retry_time = parts.dispatch, parts.retry_time
        self._joined = False
        #: The assigned partitions that cannot be read yet, each with the reason: replaced, never changed.
        self.unreadable: Mapping[Place, str] = {}
        #: The number of assigned partitions while one of them cannot be read.
        self.assigned = 0
        try:
            self._commits.check_fsync()
        except LedgerUnavailable as error:
            logger.warning("%s", error)
        self.consumer = consumer_client(
            setup.settings.kafka, setup.settings.group, error_cb=self._on_error, on_commit=self._on_commit
        )
        ledger_jobs = parts.make_ledger_jobs()
        self._committing = CommitOrRestart(
            self.consumer,
            self._commits,
            ledger_jobs.read_fates,
            self._marks,
            self._reads,
            self._blockage,
            self._timetable,
        )
        self._rebalances = RebalanceHandler(
            self._reads, self._committing, self._kafka, self._metrics, self._timetable, self._clock
        )
        self._subscription = Subscription(
            self.consumer, self._rebalances, setup.routes.topics, setup.catalog, self._logs, self._ledger
        )
        self._strangers = StrangeRecordCounter(self._assignment, self._metrics, setup.settings.group)
        self.transactions = TransactionWatch(setup.catalog)
        self._jobs = parts.make_jobs(
            self.consumer, self._committing, self._subscription, self.transactions, ledger_jobs
        )
        self._subscription.refresh()

    @property
    def joined(self) -> bool:
        """Return whether the group has assigned partitions, and Kafka has answered about each."""
        return self._joined

    def turn(self) -> None:
        """Poll records, hand off deliveries, run the jobs that are due.

        Raises:
            ConsumerFailed: Kafka's client cannot go on.
        """
        self._buffer.add(self._find_own(self._poll()))
        if self._blockage.retry() and self._blockage.attempt(self._hand_off):
            self._blockage.end()
        self._jobs.run_due()
        self._follow_topics()
        self._joined = self._joined or (self._rebalances.assigned and not self._reads.starts.unasked)
        self.unreadable = self._reads.starts.find_unreadable()
        self.assigned = len([*self._assignment]) if self.unreadable else 0
        self._reads.pauses.apply(
            self.consumer,
            self._reads.starts,
            blocked=self._blockage.why is not None,
            halted=self._decisions.halts.keys(),
            suspended=self.parts.suspended,
        )
        self._reads.carry_out_rewinds(self.consumer)

    def commit_last(self) -> None:
        """Commit what is safe, and wait some seconds for the answer."""
        if not self._kafka.down:
            self._committing.commit_last(wait=True)

    def _follow_topics(self) -> None:
        """Take in Kafka's answers, and start or read again the partitions that can."""
        self._kafka.take_answers(self._assignment, self.parts.suspended.by_halt)
        self._subscription.refresh()
        recreated = [place for place in self._kafka.find_recreated(self._assignment.logs) if place in self._assignment]
        self._reads.restart(self.consumer, recreated)
        for step in (lambda: self._reads.carry_out_rereads(self.consumer), self._begin):
            if self._blockage.why is None:
                self._blockage.attempt(step)

    def _begin(self) -> None:
        """Start the partitions whose start offset is known now."""
        if any(self._reads.starts):
            self._commits.read_ledger_state()
        for place, end in self._reads.starts.advance(self.consumer):
            self._kafka.note_end(place, end)

    def _poll(self) -> list[Record]:
        if self._blockage.why is not None:
            # All is paused: this poll serves rebalances and keeps the membership alive.
            record = self.consumer.poll(QUIET)
            return [] if record is None else [record]
        if self._buffer and not self._retry_time.left:
            # Records of retry topics that were read are taken in little by little.
            return self.consumer.consume(MOST_RECORDS, 0)
        awaited = any(partition.awaited for partition in self._assignment.busy)
        waits = awaited or self._dispatch.holds or any(self._reads.starts)
        first = self.consumer.poll(0 if self._reads.starts.more else self._until_due(BUSY if waits else QUIET))
        if first is None:
            return []
        # consume() waits until it is full, poll() for one record: so a quiet topic has no delay.
        return [first, *self.consumer.consume(MOST_RECORDS - 1, 0)]

    def _until_due(self, seconds: float) -> float:
        """Return the seconds to wait: at most so many, or until the next parked record is due or may be taken up."""
        parked = self._assignment.busy_parked
        has_due = any(partition.ripe for partition in parked)
        if (rest := self._retry_time.left) and (has_due or self._buffer):
            # librdkafka waits for whole milliseconds: a shorter wait would be asked for twice.
            return min(seconds, rest + 0.001)
        if has_due and self._dispatch.holds:
            seconds = min(seconds, SHARING)
        due = [partition.next_due for partition in parked]
        first = min((at for at in due if at is not None), default=None)
        return seconds if first is None else min(seconds, max(0.001, first - self._now()))

    def _find_own(self, records: list[Record]) -> list[tuple[Place, Record]]:
        """Return the records to take in, each with its partition."""
        polled = []
        for record in records:
            if (error := record.error()) is not None:
                self._report(error)
            else:
                polled.append(((record.topic() or "", record.partition() or 0), record))
        own = self._reads.find_own({place for place, _ in polled})
        return [(place, record) for place, record in polled if place in own]

    def _report(self, error: KafkaError) -> None:
        """Log an error that librdkafka returns in place of a record.

        Raises:
            ConsumerFailed: the error is fatal.
        """
        # In place of a record a fatal error has its code, but not its mark.
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise ConsumerFailed(f"Kafka's client cannot go on: {explain_error(error)}. Start the bridge again.")
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._timetable.soon("kafka")
        elif error.code() != KafkaError._PARTITION_EOF:
            logger.warning("Kafka: %s", explain_error(error))

    def _hand_off(self) -> None:
        self._reads.restart(self.consumer, self._logs.check(self.consumer, self._buffer.records))
        parked = self._assignment.parked_places
        sent = self._hand_off_live(parked)
        if not self._retry_time.left:
            sent += self._hand_off_parked(parked)
        self._jobs.note_handoff(sent)

    def _find_unhalted(self, *, parked: bool) -> list[Partition]:
        """Return the partitions to hand off from, of one kind: records of a halted topic keep their position."""
        halts, retries = self._decisions.halts, self._assignment.parked_places
        return [
            partition
            for partition in self._assignment.busy
            if (partition.place in retries) is parked and partition.source not in halts
        ]

    def _hand_off_live(self, parked: Collection[Place]) -> int:
        """Hand off live records first, before any retry; return how many deliveries went out."""
        read_at = self._buffer.since(parked)
        if held := self._buffer.take_live(parked):
            self._retry_time.note_live()
            self._take_in(held)
        sent = self._dispatch.hand_out(self._find_unhalted(parked=False), self.parts.suspended)
        if sent and read_at is not None:
            self._metrics.handoff_seconds.observe(self._clock() - read_at)
        return sent

    def _hand_off_parked(self, parked: Collection[Place]) -> int:
        """Take in a few retry records, and hand off due ones that have room; return how many deliveries went out."""
        begun = self._clock()
        if held := self._buffer.take_parked(parked, self._retry_time.few):
            self._take_in(held)
        for partition in self._assignment.busy_parked:
            partition.note_untaken(0)
        for place, records in self._buffer.records.items():
            if isinstance(buffered := self._assignment.get_partition(place), RetryPartition):
                buffered.note_untaken(len(records))
        self._assignment.note_read(self._buffer.records)
        sent = self._dispatch.hand_out(self._find_unhalted(parked=True), self.parts.suspended, parked=True)
        if held or sent:
            self._retry_time.note_spent(self._clock() - begun)
        self._strangers.count_records()
        return sent

    def _take_in(self, held: Mapping[Place, Sequence[Record]]) -> None:
        """Let the partitions take in records.

        Raises:
            LedgerUnavailable: the records stay in the buffer.
        """
        self._assignment.note_read(held)
        try:
            marks = take_in_records(
                self._ledger, held, {place: self._assignment.get_partition(place) for place in held}
            )
        except BaseException:
            self._buffer.put_back(held)
            raise
        self._marks.add(marks)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if self._commits.take_answer(error, partitions):
            self._kafka.note_answer()
            self._kafka.show_lag(self._assignment, self.parts.suspended.by_halt)

    def _on_error(self, error: KafkaError) -> None:
        if self._kafka.note_error(error):
            self._timetable.soon("kafka")
