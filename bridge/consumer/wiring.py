"""The wiring of a bridge: its parts before Kafka has answered, and those after."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from celery import Celery

from bridge.backpressure.pause_applier import PauseApplier
from bridge.backpressure.queue_pressure import QueuePressure
from bridge.backpressure.topic_pressure import TopicPressure
from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.handoff_backoff import HandoffBackoff
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.offset_commits import OffsetCommits
from bridge.consumer.periodic_jobs import KafkaPoll, LedgerJobs, MarkerPass, PeriodicJob, PeriodicJobs, QuietPartitions
from bridge.consumer.read_position import PartitionReads, PartitionRereads, PartitionStarts, RetryRewinds
from bridge.consumer.rebalance import CommitOrRestart
from bridge.consumer.record_buffer import RecordBuffer, RetryTimeShare
from bridge.consumer.start_offset import StartOffsetFinder
from bridge.consumer.subscription import Subscription
from bridge.dispatch.batch_sizer import BatchSizer
from bridge.dispatch.broker_search import BrokerSearch
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.dispatcher import Dispatcher, HandoffCounts, HandoffRoom, HandoffScope, ReplayCounter
from bridge.dispatch.fate_sync import PendingMarks
from bridge.dispatch.retry_share import RetryShareAllocator
from bridge.dispatch.source_record_check import SourceRecordCheck
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Routes
from bridge.jobs.audit_metrics import AuditMetrics
from bridge.jobs.backlog import count_due_deliveries
from bridge.jobs.decision_sync import GroupDecisions
from bridge.jobs.deleted_topics import DELETED_TOPICS_EVERY, DeletedTopicSearch
from bridge.jobs.dependency_gates import DependencyGates
from bridge.jobs.kafka_state import KafkaState, PolicyTopics
from bridge.jobs.limit_backlog import LimitBacklog
from bridge.jobs.open_transactions import TransactionWatch
from bridge.jobs.stuck_deliveries import StuckDeliveryFinder, StuckSuspects
from bridge.jobs.timetable import Timetable
from bridge.kafka.clients import Consumer
from bridge.kafka.managed_topic import list_needed_topics
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.kafka.topic_names import TopicNames
from bridge.ledger import Ledger, LogHistory
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition_limits import HeldBytesLimit
from bridge.settings import Settings

#: Seconds for an answer of the ledger (tried twice): more than a wait for the disk, less than a shutdown may take.
LEDGER_WITHIN: Final = 3.0
#: Seconds between two runs of a job.
FATES_EVERY: Final = 0.05
COMMIT_EVERY: Final = 1.0
#: Waiting for the disk takes up to a second (`appendfsync everysec`), in which the loop does nothing else.
FSYNC_EVERY: Final = 5.0
QUEUES_EVERY: Final = 0.5
DECIDED_EVERY: Final = 0.5
#: It costs Redis about a millisecond if messages are large.
DEPTHS_EVERY: Final = 1.0
SOURCES_EVERY: Final = 1.0
NEEDS_EVERY: Final = 0.5
LIMITS_EVERY: Final = 1.0
REPLAYS_EVERY: Final = 5.0
KAFKA_EVERY: Final = 5.0
STUCK_EVERY: Final = 60.0
AUDIT_EVERY: Final = 30.0
RENEW_EVERY: Final = 60.0


@dataclass(frozen=True)
class BridgeSetup:
    """The parts that exist before Kafka has answered.

    Attributes:
        now: the time (Unix) by which parked records become due, by Redis's clock as far as it is known.
    """

    settings: Settings
    routes: Routes
    broker: CeleryBroker
    catalog: TopicCatalog
    kafka: KafkaState
    blockage: HandoffBackoff
    decisions: GroupDecisions
    policy_topics: PolicyTopics
    metrics: BridgeMetrics
    clock: Callable[[], float]
    now: Callable[[], float]

    @classmethod
    def build(
        cls,
        app: Celery,
        settings: Settings,
        routes: Routes,
        metrics: BridgeMetrics,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> "BridgeSetup":
        """Make the parts; this connects to nothing yet."""
        catalog = TopicCatalog(settings, routes.topics, list_needed_topics(settings, routes))
        kafka, blockage = KafkaState(catalog, metrics), HandoffBackoff(metrics, clock)
        metrics.show_halted({}, routes.topics)
        metrics.show_small_halts({}, [(topic, each.name) for each in routes for topic in each.topics])
        metrics.show_policies((), routes.handlers)
        broker = CeleryBroker(app)
        decisions = GroupDecisions.build(settings, metrics, broker, LEDGER_WITHIN, clock, routes.current_names)
        policy_topics = PolicyTopics(app, settings, routes, catalog)
        return cls(settings, routes, broker, catalog, kafka, blockage, decisions, policy_topics, metrics, clock, now)

    @property
    def fsyncs(self) -> bool:
        """Return whether a topic's commits wait for the broker's append-only file."""
        return any(self.settings.topic(topic).handoff_durability == "fsync" for topic in self.routes.topics)


@dataclass(frozen=True)
class ConsumerParts:
    """The parts of the loop; `stuck_finder` and `audit_metrics` are `None` without a ledger."""

    setup: BridgeSetup
    ledger: Ledger | None
    assignment: Assignment
    reads: PartitionReads
    retry_time: RetryTimeShare
    marks: PendingMarks
    sizes: BatchSizer
    dispatch: Dispatcher
    replays: ReplayCounter
    gates: DependencyGates
    limits: LimitBacklog
    commits: OffsetCommits
    queues: QueuePressure
    sources: TopicPressure
    logs: LogChangeDetector
    timetable: Timetable
    stuck_finder: StuckDeliveryFinder | None
    audit_metrics: AuditMetrics | None
    deleted_topics: DeletedTopicSearch

    @property
    def unread(self) -> dict[Place, int]:
        """Return how many records of each source partition were not read yet, if Kafka has said where it ends.

        Parked records do not count: they are not read before they are due.
        """
        ends, parked = self.setup.kafka.ends, self.assignment.parked_places
        return {
            partition.place: max(0, ends[partition.place] - partition.offsets.window.stop)
            for partition in self.assignment.partitions
            if partition.place not in parked and partition.place in ends
        }

    def count_due(self, unread: Mapping[Place, int]) -> dict[str, dict[str, float]]:
        """Return the deliveries that could run now if they were handed off, by queue and handler."""
        setup, busy = self.setup, {partition.place for partition in self.assignment.busy}
        halted, suspended = setup.decisions.halts, self.suspended
        ripe, queue_of = setup.kafka.ripe, setup.broker.queue_of
        # Of a partition that holds nothing only unread records can be due.
        partitions = [
            partition
            for partition in self.assignment.partitions
            if (place := partition.place) in busy
            or unread.get(place)
            or ripe.get(place, 0) > partition.offsets.window.stop
        ]
        return count_due_deliveries(
            partitions, unread, ripe, setup.routes, queue_of, halted=halted, suspended=suspended
        )

    @property
    def suspended(self) -> SuspendedHandlers:
        """Return the handlers of which nothing is handed off: their dependency is down, their limit has a long backlog,
        or they are halted.
        """
        by_halt, suspended = self.setup.decisions.suspended, self.limits.add_to(self.gates.suspended)
        return suspended._replace(by_halt=by_halt) if any(by_halt) else suspended

    def make_ledger_jobs(self) -> LedgerJobs:
        """Make the jobs that compare the partitions with the ledger."""
        return LedgerJobs(self.ledger, self.reads, self.marks, self.stuck_finder, self.timetable, self.setup.metrics)

    def make_jobs(
        self,
        consumer: Consumer,
        committing: CommitOrRestart,
        subscription: Subscription,
        transactions: TransactionWatch,
        ledger: LedgerJobs,
    ) -> PeriodicJobs:
        """Make the table of periodic jobs."""
        setup, file = self.setup, self.setup.settings.file
        markers = MarkerPass(consumer, self.reads, setup.kafka, self.logs, self.marks, transactions)
        quiet = QuietPartitions(consumer, self.reads, self.timetable)
        poll = KafkaPoll(
            setup.kafka,
            self.assignment,
            setup.decisions,
            setup.policy_topics,
            self.sources,
            subscription,
            markers,
            quiet,
        )
        jobs = (
            PeriodicJob("fates", FATES_EVERY, ledger.read_awaited_fates),
            PeriodicJob("commit", FSYNC_EVERY if setup.fsyncs else COMMIT_EVERY, committing.commit),
            PeriodicJob("queues", QUEUES_EVERY, self.queues.update_lengths),
            PeriodicJob("depths", DEPTHS_EVERY, self.queues.update_depths),
            PeriodicJob(
                "sources", SOURCES_EVERY, lambda: self.sources.update_counts(setup.kafka.dying, setup.kafka.parked)
            ),
            PeriodicJob("needs", NEEDS_EVERY, self.gates.update),
            PeriodicJob("limits", LIMITS_EVERY, self.limits.update),
            PeriodicJob("decided", DECIDED_EVERY, setup.decisions.update),
            PeriodicJob("replays", REPLAYS_EVERY, self.replays.write_counts),
            PeriodicJob("kafka", KAFKA_EVERY, poll.ask_kafka),
            PeriodicJob("stuck", min(STUCK_EVERY, file.kafka_stuck_after), ledger.find_stuck),
            PeriodicJob("audit", AUDIT_EVERY, self._show_audit),
            PeriodicJob("gone", DELETED_TOPICS_EVERY, self.deleted_topics.start),
            PeriodicJob("renew", min(RENEW_EVERY, file.kafka_ledger_days * 86_400 / 4), ledger.renew_pages),
        )
        return PeriodicJobs(jobs, self.timetable, setup.blockage)

    def _show_audit(self) -> None:
        if self.audit_metrics is not None:
            self.audit_metrics.show(self.setup.kafka.ends)

    @classmethod
    def build(cls, setup: BridgeSetup) -> "ConsumerParts":
        """Make the parts for the cluster that has answered."""
        settings, metrics, clock, broker = setup.settings, setup.metrics, setup.clock, setup.broker
        file, cluster = settings.file, setup.catalog.cluster
        ledger = Ledger.from_settings(settings, cluster, LEDGER_WITHIN)
        assignment = Assignment(settings, setup.routes, setup.catalog, ledger, setup.now)
        marks = PendingMarks(ledger)
        sizes = BatchSizer(setup.routes, ledger, broker)
        shares = RetryShareAllocator(file.kafka_retry_share, sizes, broker, ledger, file.kafka_pause_above)
        replays = ReplayCounter(ledger, TopicNames.from_settings(settings), setup.routes.topics, setup.routes.handlers)
        exists = SourceRecordCheck(setup.catalog, LogHistory(ledger).read_logs if ledger else lambda _: {}).exists
        room, counts = HandoffRoom(sizes, shares), HandoffCounts(metrics, replays)
        scope = HandoffScope(cluster, settings.group, settings.one_redis)
        dispatch = Dispatcher(broker, ledger, marks, room, counts, scope, exists)
        commits = OffsetCommits(assignment, ledger, setup.fsyncs, metrics)
        after = file.kafka_stuck_after
        queues = QueuePressure(broker, setup.routes, file, metrics, ledger)
        sources = TopicPressure(setup.routes.topics, file, ledger)
        logs = LogChangeDetector(ledger, assignment, commits, metrics)
        finder = StartOffsetFinder(settings, assignment, ledger, logs)
        # A retry record may name a handler that this app does not have any more: it goes to the default queue.
        everywhere = {*setup.routes.queues, str(broker.app.conf.task_default_queue)}
        return cls(
            setup=setup,
            ledger=ledger,
            assignment=assignment,
            reads=PartitionReads(
                assignment,
                RecordBuffer(metrics, clock),
                PartitionStarts(assignment, setup.catalog, logs, finder, clock),
                PartitionRereads(assignment),
                RetryRewinds(assignment),
                PauseApplier(
                    assignment,
                    queues,
                    metrics,
                    setup.catalog.source_of,
                    sources,
                    HeldBytesLimit(file.kafka_pause_above_held_bytes),
                ),
            ),
            retry_time=RetryTimeShare(file.kafka_retry_share, clock),
            marks=marks,
            sizes=sizes,
            dispatch=dispatch,
            replays=replays,
            gates=DependencyGates(setup.routes, ledger, broker, settings.group, metrics),
            limits=LimitBacklog(setup.routes, ledger, metrics, file.kafka_pause_above),
            commits=commits,
            queues=queues,
            logs=logs,
            sources=sources,
            timetable=Timetable(clock),
            stuck_finder=StuckDeliveryFinder(
                BrokerSearch(broker), StuckSuspects(ledger, metrics, after), assignment, after, queues=everywhere
            )
            if ledger
            else None,
            audit_metrics=AuditMetrics(ledger, assignment, metrics) if ledger else None,
            deleted_topics=DeletedTopicSearch(settings, ledger, setup.catalog),
        )
