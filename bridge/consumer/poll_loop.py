"""The poll loop: each turn polls, hands off, runs the periodic jobs, and pauses or resumes partitions."""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from bridge.consumer.periodic_jobs import PeriodicJobs
from bridge.consumer.rebalance import CommitOrRestart, RebalanceHandler, restart_partitions
from bridge.consumer.subscription import Subscription
from bridge.consumer.wiring import BridgeSetup, ConsumerParts
from bridge.dispatch.fate_sync import take_in_records
from bridge.errors import ConsumerFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import KafkaError, Record, TopicPartition, consumer_client
from bridge.partitions.partition import Partition

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
        self.parts = parts = ConsumerParts.of(setup)
        self._blockage, self._kafka, self._clock = setup.blockage, setup.kafka, setup.clock
        self._joined = False
        try:
            parts.commits.check()
        except LedgerUnavailable as error:
            logger.warning("%s", error)
        self.consumer = consumer_client(
            setup.settings.kafka, setup.settings.group, error_cb=self._on_error, on_commit=self._on_commit
        )
        self._committing = CommitOrRestart(parts, self.consumer)
        self._rebalances = RebalanceHandler(parts, self._committing)
        self._subscription = Subscription(parts, self.consumer, self._rebalances)
        self.jobs = PeriodicJobs(parts, self.consumer, self._committing, self._subscription)
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
        parts = self.parts
        parts.held.add(self._find_own(self._poll()))
        if self._blockage.retry() and self._blockage.attempt(self._hand_off):
            self._blockage.over()
        self.jobs.run_due()
        self._joined = self._joined or (self._rebalances.assigned and not parts.starts.unasked)
        parts.pauses.apply(
            self.consumer,
            parts.starts,
            blocked=self._blockage.why is not None,
            halted=parts.setup.decisions.halts.keys(),
            suspended=parts.gates.suspended,
        )
        for partition in parts.assignment.parked:
            if partition.rewind is not None:
                # These records are read again with those before them.
                parts.held.drop([partition.place])
                partition.more = 0
        # After the pauses: a paused partition resumes from the sought offset.
        parts.rewinds.carry_out(self.consumer, {*parts.starts, *parts.rereads})

    def commit_last(self) -> None:
        """Commit what is safe, and wait some seconds for the answer."""
        if not self._kafka.down:
            self._committing.last(wait=True)

    def _poll(self) -> list[Record]:
        parts = self.parts
        if self._blockage.why is not None:
            # All is paused: this poll serves rebalances and keeps the membership alive.
            record = self.consumer.poll(QUIET)
            return [] if record is None else [record]
        if parts.held and not parts.retry_time.left:
            # Records of retry topics that were read are taken in little by little.
            return self.consumer.consume(MOST_RECORDS, 0)
        watched = any(partition.watched for partition in parts.assignment.partitions)
        waits = watched or parts.dispatch.holds or any(parts.starts)
        first = self.consumer.poll(self._until_due(BUSY if waits else QUIET))
        if first is None:
            return []
        # consume() waits until it is full, poll() for one record: so a quiet topic has no delay.
        return [first, *self.consumer.consume(MOST_RECORDS - 1, 0)]

    def _until_due(self, seconds: float) -> float:
        """Return the seconds to wait: at most so many, or until the next parked record is due or may be taken up."""
        ripe = any(partition.ripe for partition in self.parts.assignment.parked)
        if (rest := self.parts.retry_time.left) and (ripe or self.parts.held):
            # librdkafka waits for whole milliseconds: a shorter wait would be asked for twice.
            return min(seconds, rest + 0.001)
        if ripe and self.parts.dispatch.holds:
            seconds = min(seconds, SHARING)
        due = [partition.next_due for partition in self.parts.assignment.parked]
        first = min((at for at in due if at is not None), default=None)
        return seconds if first is None else min(seconds, max(0.001, first - time.time()))

    def _find_own(self, records: list[Record]) -> Iterator[tuple[Place, Record]]:
        """Yield the records to take in, each with its partition."""
        parts = self.parts
        rewinding = {partition.place for partition in parts.assignment.parked if partition.rewind is not None}
        for record in records:
            if (error := record.error()) is not None:
                self._report(error)
                continue
            place = (record.topic() or "", record.partition() or 0)
            # The revoke callback runs inside poll(): records from before it are another bridge's now.
            ours = place in parts.assignment and place not in rewinding
            if ours and place not in parts.rereads and place not in parts.starts:
                yield place, record

    def _report(self, error: KafkaError) -> None:
        """Log an error that librdkafka returns in place of a record.

        Raises:
            ConsumerFailed: the error is fatal.
        """
        # In place of a record a fatal error has its code, but not its mark.
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise ConsumerFailed(f"Kafka's client cannot go on: {error.str()}. Start the bridge again.")
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self.parts.timetable.soon("kafka")
        elif error.code() != KafkaError._PARTITION_EOF:
            logger.warning("Kafka: %s", error.str())

    def _hand_off(self) -> None:
        parts = self.parts
        restart_partitions(parts, self.consumer, parts.logs.check(self.consumer, parts.held.records))
        halts = parts.setup.decisions.halts
        # Records of a halted topic that were read keep their position.
        partitions = [partition for partition in parts.assignment.partitions if partition.source not in halts]
        parked = {partition.place for partition in parts.assignment.parked}
        sent = self._hand_off_live([partition for partition in partitions if partition.place not in parked], parked)
        if not parts.retry_time.left:
            sent += self._hand_off_parked([partition for partition in partitions if partition.place in parked], parked)
        self.jobs.handed_off(sent)

    def _hand_off_live(self, partitions: Sequence[Partition], parked: Collection[Place]) -> int:
        """Hand off live records first, before any retry; return how many deliveries went out."""
        parts = self.parts
        read_at = parts.held.since(parked)
        if held := parts.held.take_live(parked):
            parts.retry_time.live()
            self._take_in(held)
        sent = parts.dispatch.hand_out(partitions, parts.gates.suspended)
        if sent and read_at is not None:
            parts.setup.metrics.handoff_seconds.observe(self._clock() - read_at)
        return sent

    def _hand_off_parked(self, partitions: Sequence[Partition], parked: Collection[Place]) -> int:
        """Take in a few retry records, and hand off due ones that have room; return how many deliveries went out."""
        parts, begun = self.parts, self._clock()
        if held := parts.held.take_parked(parked, parts.retry_time.few):
            self._take_in(held)
        for partition in parts.assignment.parked:
            partition.more = len(parts.held.records.get(partition.place, ()))
        sent = parts.dispatch.hand_out(partitions, parts.gates.suspended, parked=True)
        if held or sent:
            parts.retry_time.spent(self._clock() - begun)
        self._subscription.count_strange()
        return sent

    def _take_in(self, held: Mapping[Place, Sequence[Record]]) -> None:
        """Let the partitions take in records.

        Raises:
            LedgerUnavailable: the records stay in the buffer.
        """
        parts = self.parts
        try:
            marks = take_in_records(parts.ledger, held, {place: parts.assignment.at(place) for place in held})
        except BaseException:
            parts.held.put_back(held)
            raise
        parts.marks.add(marks)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._committing.answered(error, partitions)

    def _on_error(self, error: KafkaError) -> None:
        if self._kafka.failed(error):
            self.parts.timetable.soon("kafka")
