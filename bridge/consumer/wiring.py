"""The parts of a bridge and how they are connected, before and after Kafka has answered."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from celery import Celery

from bridge.backpressure.partition_pauses import PartitionPauses
from bridge.backpressure.queue_pressure import QueuePressure
from bridge.backpressure.topic_pressure import TopicPressure
from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.handoff_backoff import HandoffBackoff
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.offset_commits import OffsetCommits
from bridge.consumer.read_position import PartitionRereads, PartitionStarts, RetryRewinds
from bridge.consumer.record_buffer import RecordBuffer, RetryTimeShare
from bridge.consumer.start_offset import StartOffsetFinder
from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.dispatcher import Dispatcher, ReplayCounter
from bridge.dispatch.fate_sync import PendingMarks
from bridge.dispatch.retry_share_allocator import RetryShareAllocator
from bridge.dispatch.source_record_check import SourceRecordCheck
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.jobs.audit_metrics import AuditMetrics
from bridge.jobs.backlog import count_due_deliveries
from bridge.jobs.deleted_topics import DeletedTopicSearch
from bridge.jobs.dependency_gates import DependencyGates
from bridge.jobs.group_decisions import GroupDecisions
from bridge.jobs.kafka_state import KafkaState, PolicyTopics
from bridge.jobs.stuck_deliveries import StuckDeliveryFinder, StuckSuspects
from bridge.jobs.timetable import Timetable
from bridge.kafka.managed_topic import list_needed_topics
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Ledger, LogHistory
from bridge.partitions.assignment import Assignment
from bridge.partitions.retry_partition import RetryPartition
from bridge.settings import Settings

#: Seconds for an answer of the ledger (tried twice); more than a wait for the disk, less than a shutdown may take.
LEDGER_WITHIN = 3.0


@dataclass
class BridgeSetup:
    """What there is before Kafka has answered.

    Attributes:
        now: the time (Unix) by which parked records become due, of Redis's clock as far as that is known.
    """

    settings: Settings
    routes: Routes
    broker: CeleryBroker
    catalog: TopicCatalog
    kafka: KafkaState
    blockage: HandoffBackoff
    decided: GroupDecisions
    waits: PolicyTopics
    metrics: BridgeMetrics
    clock: Callable[[], float]
    now: Callable[[], float] = time.time

    @classmethod
    def of(
        cls, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> "BridgeSetup":
        """Connects to nothing yet."""
        metrics = BridgeMetrics()
        catalog = TopicCatalog(settings, routes.topics, list_needed_topics(settings, routes))
        kafka, blockage = KafkaState(catalog, metrics), HandoffBackoff(metrics, clock)
        metrics.show_halted({}, routes.topics)
        metrics.show_policies((), routes.handlers)
        broker = CeleryBroker(app)
        decided = GroupDecisions.of(settings, metrics, broker, LEDGER_WITHIN, clock)
        waits = PolicyTopics(app, settings, routes, catalog)
        return cls(settings, routes, broker, catalog, kafka, blockage, decided, waits, metrics, clock)

    @property
    def fsyncs(self) -> bool:
        """Whether a topic's commits wait for the broker's append-only file."""
        return any(self.settings.topic(topic).handoff_durability == "fsync" for topic in self.routes.topics)


@dataclass
class ConsumerParts:
    """The parts of the loop; `search` and `gauges` are `None` without a ledger."""

    before: BridgeSetup
    ledger: Ledger | None
    assignment: Assignment
    held: RecordBuffer
    rests: RetryTimeShare
    marks: PendingMarks
    sizes: BatchSizer
    dispatch: Dispatcher
    replays: ReplayCounter
    needs: DependencyGates
    commits: OffsetCommits
    queues: QueuePressure
    sources: TopicPressure
    logs: LogChangeDetector
    beginnings: PartitionStarts
    rereads: PartitionRereads
    rewinds: RetryRewinds
    pauses: PartitionPauses
    timetable: Timetable
    search: StuckDeliveryFinder | None
    gauges: AuditMetrics | None
    gone: DeletedTopicSearch

    @property
    def unread(self) -> dict[Place, int]:
        """Records of each partition of a source that Kafka has and that were not read yet, as far as it has said where
        it ends. What is parked is not to be read before it is due.
        """
        ends = self.before.kafka.ends
        return {
            partition.place: max(0, ends[partition.place] - partition.offsets.window.stop)
            for partition in self.assignment.partitions
            if partition.place in ends and not isinstance(partition, RetryPartition)
        }

    @property
    def due(self) -> dict[str, dict[str, float]]:
        """Deliveries that could run now if they were handed off, by queue and handler."""
        before, unread = self.before, self.unread
        halted, suspended = before.decided.halts, self.needs.suspended
        partitions, ripe, queue_of = self.assignment.partitions, before.kafka.ripe, before.broker.queue_of
        return count_due_deliveries(
            partitions, unread, ripe, before.routes, queue_of, halted=halted, suspended=suspended
        )

    @classmethod
    def of(cls, before: BridgeSetup) -> "ConsumerParts":
        """Of the cluster that has answered."""
        settings, metrics, clock, broker = before.settings, before.metrics, before.clock, before.broker
        file, cluster = settings.file, before.catalog.cluster
        ledger = Ledger.of(settings, cluster, LEDGER_WITHIN)
        assignment = Assignment(settings, before.routes, before.catalog, ledger, before.now)
        marks = PendingMarks(ledger)
        sizes = BatchSizer(before.routes, ledger, broker)
        shares = RetryShareAllocator(file.kafka_retry_share, sizes, broker, ledger, file.kafka_pause_above)
        replays = ReplayCounter(ledger, TopicNames.of(settings), before.routes.topics, before.routes.handlers)
        dispatch = Dispatcher(
            broker,
            ledger,
            marks,
            sizes,
            shares,
            settings.one_redis,
            cluster,
            settings.group,
            metrics,
            replays,
            SourceRecordCheck(before.catalog, LogHistory(ledger).known if ledger else lambda _: {}).exists,
        )
        commits = OffsetCommits(assignment, ledger, before.fsyncs, metrics)
        after = file.kafka_stuck_after
        queues = QueuePressure(broker, before.routes, file, metrics, ledger)
        sources = TopicPressure(before.routes.topics, file, ledger)
        logs = LogChangeDetector(ledger, assignment, commits, metrics)
        starts = StartOffsetFinder(settings, assignment, ledger, logs)
        # A record of a retry topic may name a handler that is none of ours any more: it goes to the default queue.
        everywhere = {*before.routes.queues, str(broker.app.conf.task_default_queue)}
        return cls(
            before=before,
            ledger=ledger,
            assignment=assignment,
            held=RecordBuffer(metrics, clock),
            rests=RetryTimeShare(file.kafka_retry_share, clock),
            marks=marks,
            sizes=sizes,
            dispatch=dispatch,
            replays=replays,
            needs=DependencyGates(before.routes, ledger, broker, settings.group, metrics),
            commits=commits,
            queues=queues,
            logs=logs,
            beginnings=PartitionStarts(assignment, before.catalog, logs, starts, clock),
            rereads=PartitionRereads(assignment),
            rewinds=RetryRewinds(assignment),
            sources=sources,
            pauses=PartitionPauses(assignment, queues, metrics, before.catalog.source_of, sources),
            timetable=Timetable(clock),
            search=StuckDeliveryFinder(
                BrokerSearch(broker), StuckSuspects(ledger, metrics, after), assignment, after, queues=everywhere
            )
            if ledger
            else None,
            gauges=AuditMetrics(ledger, assignment, metrics) if ledger else None,
            gone=DeletedTopicSearch(settings, ledger, before.catalog),
        )
