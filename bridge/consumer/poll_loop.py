"""One turn of the loop: poll, hand off, run the periodic jobs, pause or resume."""

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

#: Most records of one turn; what is held while the broker is away is never more.
MOST_RECORDS: Final = 2_000
#: Seconds that a poll waits for a record: where something else waits for the next turn, and where nothing does.
BUSY, QUIET = 0.02, 0.1
#: The same while what was parked is due and waits for its share: little of it is in a queue, and soon run.
SHARING: Final = 0.005


class PollLoop:
    """Consumes from the moment that it is made.

    One thread does all that touches Kafka's consumer, but for a commit that is waited for
    (bridge.consumer.offset_commits): librdkafka gives no promises for pausing and rebalancing beside a `consume()`.

    Raises:
        LedgerCannotFsync: a topic asks for handoff_durability="fsync", and this Redis can never say it.
    """

    def __init__(self, before: BridgeSetup) -> None:
        self.parts = parts = ConsumerParts.of(before)
        self._blockage, self._kafka, self._clock = before.blockage, before.kafka, before.clock
        self._joined = False
        try:
            parts.commits.check()
        except LedgerUnavailable as error:
            logger.warning("%s", error)
        self.consumer = consumer_client(
            before.settings.kafka, before.settings.group, error_cb=self._on_error, on_commit=self._on_commit
        )
        self._committing = CommitOrRestart(parts, self.consumer)
        self._rebalances = RebalanceHandler(parts, self._committing)
        self._subscription = Subscription(parts, self.consumer, self._rebalances)
        self.looks = PeriodicJobs(parts, self.consumer, self._committing, self._subscription)
        self._subscription.keep()

    @property
    def joined(self) -> bool:
        """Whether the group has given this bridge its partitions, and Kafka has said something of each."""
        return self._joined

    def turn(self) -> None:
        """Read what there is, hand off what may go out, look at what is due.

        Raises:
            ConsumerFailed: Kafka's client cannot go on.
        """
        parts = self.parts
        parts.held.add(self._ours(self._poll()))
        if self._blockage.retry() and self._blockage.attempt(self._hand_off):
            self._blockage.over()
        self.looks.look()
        self._joined = self._joined or (self._rebalances.assigned and not parts.beginnings.unasked)
        parts.pauses.apply(
            self.consumer,
            parts.beginnings,
            blocked=self._blockage.why is not None,
            halted=parts.before.decided.halts.keys(),
            suspended=parts.needs.suspended,
        )
        for partition in parts.assignment.parked:
            if partition.rewind is not None:
                # It is read again with what lies before it.
                parts.held.drop([partition.place])
                partition.more = 0
        # After it: what is paused goes on from where it was sought.
        parts.rewinds.carry_out(self.consumer, {*parts.beginnings, *parts.rereads})

    def commit_last(self) -> None:
        """Commit what is safe, and wait for the answer for some seconds."""
        if not self._kafka.down:
            self._committing.last(wait=True)

    def _poll(self) -> list[Record]:
        parts = self.parts
        if self._blockage.why is not None:
            # Everything is paused: this serves rebalances and keeps the membership alive.
            record = self.consumer.poll(QUIET)
            return [] if record is None else [record]
        if parts.held and not parts.rests.left:
            # What was read of retry topics is taken in little by little.
            return self.consumer.consume(MOST_RECORDS, 0)
        watched = any(partition.watched for partition in parts.assignment.partitions)
        waits = watched or parts.dispatch.holds or any(parts.beginnings)
        first = self.consumer.poll(self._until_due(BUSY if waits else QUIET))
        if first is None:
            return []
        # consume() waits for all it may take, poll() for one: so a quiet topic has no delay.
        return [first, *self.consumer.consume(MOST_RECORDS - 1, 0)]

    def _until_due(self, seconds: float) -> float:
        """As long, or until the next of what is parked is due, or its rest is over."""
        ripe = any(partition.ripe for partition in self.parts.assignment.parked)
        if (rest := self.parts.rests.left) and (ripe or self.parts.held):
            # librdkafka waits for whole milliseconds: what is shorter would be asked for once more.
            return min(seconds, rest + 0.001)
        if ripe and self.parts.dispatch.holds:
            seconds = min(seconds, SHARING)
        due = [partition.next_due for partition in self.parts.assignment.parked]
        first = min((each for each in due if each is not None), default=None)
        return seconds if first is None else min(seconds, max(0.001, first - time.time()))

    def _ours(self, records: list[Record]) -> Iterator[tuple[Place, Record]]:
        """The records that are to be taken in, each with its place."""
        parts = self.parts
        rewinding = {partition.place for partition in parts.assignment.parked if partition.rewind is not None}
        for record in records:
            if (error := record.error()) is not None:
                self._report(error)
                continue
            place = (record.topic() or "", record.partition() or 0)
            # The revoke callback runs inside poll(): what came before it is another bridge's now.
            ours = place in parts.assignment and place not in rewinding
            if ours and place not in parts.rereads and place not in parts.beginnings:
                yield place, record

    def _report(self, error: KafkaError) -> None:
        """Say what librdkafka reports in place of a record."""
        # In place of a record it has the code alone, without the mark of a fatal error.
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise ConsumerFailed(f"Kafka's client cannot go on: {error.str()}. Start the bridge again.")
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self.parts.timetable.soon("kafka")
        elif error.code() != KafkaError._PARTITION_EOF:
            logger.warning("Kafka: %s", error.str())

    def _hand_off(self) -> None:
        parts = self.parts
        restart_partitions(parts, self.consumer, parts.logs.check(self.consumer, parts.held.records))
        halts = parts.before.decided.halts
        # What was read of a halted topic keeps its place.
        partitions = [each for each in parts.assignment.partitions if each.source not in halts]
        parked = {partition.place for partition in parts.assignment.parked}
        sent = self._hand_off_live([each for each in partitions if each.place not in parked], parked)
        if not parts.rests.left:
            sent += self._hand_off_parked([each for each in partitions if each.place in parked], parked)
        self.looks.handed_off(sent)

    def _hand_off_live(self, partitions: Sequence[Partition], parked: Collection[Place]) -> int:
        """First of all: it waits for nothing that was parked; return how many deliveries went out."""
        parts = self.parts
        read_at = parts.held.since(parked)
        if held := parts.held.take_live(parked):
            parts.rests.live()
            self._take_in(held)
        sent = parts.dispatch.hand_out(partitions, parts.needs.suspended)
        if sent and read_at is not None:
            parts.before.metrics.handoff_seconds.observe(self._clock() - read_at)
        return sent

    def _hand_off_parked(self, partitions: Sequence[Partition], parked: Collection[Place]) -> int:
        """A few of those that were read, and what is due and has room; return how many deliveries went out."""
        parts, begun = self.parts, self._clock()
        if held := parts.held.take_parked(parked, parts.rests.few):
            self._take_in(held)
        for partition in parts.assignment.parked:
            partition.more = len(parts.held.records.get(partition.place, ()))
        sent = parts.dispatch.hand_out(partitions, parts.needs.suspended, parked=True)
        if held or sent:
            parts.rests.spent(self._clock() - begun)
        self._subscription.tell_strange()
        return sent

    def _take_in(self, held: Mapping[Place, Sequence[Record]]) -> None:
        """Let the partitions take in what was read.

        Raises:
            LedgerUnavailable: it is held still.
        """
        parts = self.parts
        try:
            found = take_in_records(parts.ledger, held, {place: parts.assignment.at(place) for place in held})
        except BaseException:
            parts.held.put_back(held)
            raise
        parts.marks.add(found)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._committing.answered(error, partitions)

    def _on_error(self, error: KafkaError) -> None:
        if self._kafka.failed(error):
            self.parts.timetable.soon("kafka")
