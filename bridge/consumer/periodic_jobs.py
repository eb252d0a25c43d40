"""The periodic jobs of a running bridge, done between two hand-offs."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from bridge.backpressure.topic_pressure import TopicPressure
from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.handoff_backoff import HandoffBackoff
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.read_position import PartitionReads
from bridge.consumer.subscription import Subscription
from bridge.dispatch.fate_sync import LostFates, PendingMarks, read_handed_fates
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count
from bridge.jobs.decision_sync import GroupDecisions
from bridge.jobs.kafka_state import KafkaState, PolicyTopics
from bridge.jobs.open_transactions import TransactionWatch
from bridge.jobs.stuck_deliveries import StuckDeliveryFinder
from bridge.jobs.timetable import Timetable
from bridge.kafka.clients import Consumer, KafkaException, TopicPartition
from bridge.kafka.partition_offsets import cached_first_and_end
from bridge.ledger import Ledger
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition

logger = logging.getLogger(__name__)

#: Deliveries handed off after which the queues are polled early.
POLL_QUEUES_AFTER: Final = 5_000


class PeriodicJob(NamedTuple):
    """A job and the seconds between two runs of it."""

    name: str
    every: float
    do: Callable[[], None]


class PeriodicJobs:
    """The jobs of the loop, each when it is due; while nothing can be handed off, only that of Kafka."""

    def __init__(self, jobs: Sequence[PeriodicJob], timetable: Timetable, blockage: HandoffBackoff) -> None:
        self._jobs, self._timetable, self._blockage = jobs, timetable, blockage
        self._handed_off = 0

    def note_handoff(self, deliveries: int) -> None:
        """Count deliveries that went out: after many, the queues are polled early."""
        self._handed_off += deliveries
        if self._handed_off >= POLL_QUEUES_AFTER:
            self._timetable.soon("queues")

    def run_due(self) -> None:
        """Run the jobs that are due."""
        for job in self._jobs:
            if (job.name == "kafka" or self._blockage.why is None) and self._timetable.due(job.name, job.every):
                if job.name == "queues":
                    self._handed_off = 0
                self._blockage.attempt(job.do)


class LedgerJobs:
    """The jobs that compare the partitions with the ledger.

    Parameters:
        ledger: `None` without Redis: there is nothing to do.
        stuck_finder: `None` likewise.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        reads: PartitionReads,
        marks: PendingMarks,
        stuck_finder: StuckDeliveryFinder | None,
        timetable: Timetable,
        metrics: BridgeMetrics,
    ) -> None:
        self._ledger, self._reads, self._marks = ledger, reads, marks
        self._stuck_finder, self._timetable, self._metrics = stuck_finder, timetable, metrics

    def read_fates(self) -> None:
        """Poll all fates on which a commit depends; call it before each commit."""
        self._read_fates([partition for partition in self._reads.assignment.busy if partition.watched])

    def read_awaited_fates(self) -> None:
        """Poll the fates of handed deliveries that others wait for, a few times between two commits."""
        self._read_fates([partition for partition in self._reads.assignment.busy if partition.awaited], awaited=True)

    def _read_fates(self, partitions: Sequence[Partition], *, awaited: bool = False) -> None:
        if self._ledger is None or not partitions:
            return
        seen = read_handed_fates(self._ledger, partitions, awaited=awaited)
        for lost in seen.undone:
            self._read_again(lost)
        self._marks.add(seen.marks)
        self._marks.write()

    def _read_again(self, lost: LostFates) -> None:
        partition, offset, count = lost
        logger.warning("%s-%d: the ledger has lost fates from offset %d on: read again.", *partition.place, offset)
        if count:
            logger.warning("the ledger lost that %s done: they run again.", format_count(count, "delivery", "were"))
            self._metrics.undone.inc(count)
        self._reads.rereads.request_reread(partition, offset)
        # A halt that only Kafka still has must be known before anything is handed off again.
        self._timetable.soon("decided")

    def find_stuck(self) -> None:
        """Go on with the search for stuck deliveries, and read those again that were found."""
        if self._stuck_finder is None:
            return
        for partition, offset in self._stuck_finder.go_on():
            self._reads.rereads.request_reread(partition, offset)
        if self._stuck_finder.more:
            self._timetable.soon("stuck")

    def renew_pages(self) -> None:
        """Renew the ledger pages on which the commit waits."""
        if self._ledger is not None:
            renew_ledger_pages(self._ledger, self._reads.assignment.partitions)


class MarkerPass:
    """The pass over offsets that Kafka's client passes: a transaction's marker or an aborted record is never returned.

    Attributes:
        transactions: the open transactions that hold back partitions of this bridge.
    """

    def __init__(
        self,
        consumer: Consumer,
        reads: PartitionReads,
        kafka: KafkaState,
        logs: LogChangeDetector,
        marks: PendingMarks,
        transactions: TransactionWatch,
    ) -> None:
        self._consumer, self._reads, self._kafka, self._logs, self._marks = consumer, reads, kafka, logs, marks
        self.transactions = transactions

    def pass_markers(self) -> None:
        """Let partitions of which all is read pass the offsets that the client has passed.

        The position is unknown after a seek until something was read, so records that are read again are not passed.
        """
        ends, busy = self._kafka.ends, self._reads.unsettled | self._reads.buffer.records.keys()
        idle = [
            partition
            for partition in self._reads.assignment.partitions
            if partition.place not in busy
            and ends.get(partition.place, 0) > partition.offsets.window.stop
            and not (isinstance(partition, RetryPartition) and partition.rewind is not None)
        ]
        sources = [partition for partition in idle if not isinstance(partition, RetryPartition)]
        self.transactions.poll(
            {partition.place: (partition.offsets.window.stop, ends[partition.place]) for partition in sources}
        )
        if not idle:
            return
        positions = self._consumer.position([TopicPartition(*partition.place) for partition in idle])
        for partition, position in zip(idle, positions, strict=True):
            # A record that expired before it was read is no marker: the next record tells.
            if (
                position.offset
                > partition.offsets.window.stop
                >= self._logs.get_first_offset(self._consumer, partition.place)
            ):
                self._marks.add(partition.pass_to(position.offset))


#: Seconds between two questions about the ends of all partitions, whatever Kafka's client has fetched.
ASK_ALL_EVERY: Final = 30.0


class QuietPartitions:
    """The search for retry partitions with nothing new, about whose ends Kafka need not be asked.

    Kafka's client fetches each partition that is not paused, and knows with each answer where it ends. So a new record
    is noticed as soon without a question; a question for each of a thousand partitions costs much.
    """

    def __init__(self, consumer: Consumer, reads: PartitionReads, timetable: Timetable) -> None:
        self._consumer, self._reads, self._timetable = consumer, reads, timetable

    def find_ends(self) -> dict[Place, int]:
        """Return the ends of those that hold nothing, are fetched, and are read to the end; every 30 s, of none."""
        if self._timetable.due("all ends", ASK_ALL_EVERY):
            return {}
        assignment = self._reads.assignment
        others = {partition.place for partition in assignment.busy} | self._reads.pauses.reasons.keys()
        return {
            partition.place: partition.offsets.window.stop
            for partition in assignment.parked
            if partition.place not in others and self._is_read(partition)
        }

    def _is_read(self, partition: Partition) -> bool:
        try:
            answer = self._consumer.get_watermark_offsets(TopicPartition(*partition.place), cached=True)
        except KafkaException:
            return False
        return cached_first_and_end(answer)[1] == partition.offsets.window.stop


class KafkaPoll:
    """The questions to Kafka that the loop does not wait for, and what is done between two of them."""

    def __init__(
        self,
        kafka: KafkaState,
        assignment: Assignment,
        decisions: GroupDecisions,
        policy_topics: PolicyTopics,
        sources: TopicPressure,
        subscription: Subscription,
        markers: MarkerPass,
        quiet: QuietPartitions,
    ) -> None:
        self._quiet = quiet
        self._kafka, self._assignment, self._sources = kafka, assignment, sources
        self._decisions, self._policy_topics = decisions, policy_topics
        self._subscription, self._markers = subscription, markers

    def ask_kafka(self) -> None:
        """Ask Kafka how the topics of this bridge stand."""
        self._policy_topics.need_topics(self._decisions.policies)
        self._kafka.ask_ends(self._assignment, self._quiet.find_ends())
        if self._sources.letters.wanted:
            self._kafka.ask_letters()
        self._subscription.log_orphans()
        self._markers.pass_markers()


def renew_ledger_pages(ledger: Ledger, partitions: Iterable[Partition]) -> None:
    """Renew the ledger pages on which the commit waits, however long their deliveries are in flight.

    Raises:
        LedgerUnavailable: Redis does not answer.
    """
    ledger.renew(
        (account, window.start, window.stop - 1)
        for partition in partitions
        if partition.watched
        for account in partition.accounts.values()
        for window in partition.offsets.windows
    )
