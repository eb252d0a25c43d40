"""What a bridge is made of, once Kafka has answered."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from celery import Celery

from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.handoff.dispatch import Dispatch
from bridge.handoff.marks import Marks
from bridge.handoff.messages import Messages
from bridge.handoff.replays import Replays
from bridge.handoff.shares import Shares
from bridge.handoff.sizes import Sizes
from bridge.handoff.source_ends import SourceEnds
from bridge.ledger import Ledger, LogBook
from bridge.loop.beginnings import Beginnings
from bridge.loop.blockage import Blockage
from bridge.loop.commits import Commits
from bridge.loop.due import due
from bridge.loop.held import Held
from bridge.loop.log_check import Logs
from bridge.loop.rereads import Rereads
from bridge.loop.rests import Rests
from bridge.loop.rewinds import Rewinds
from bridge.loop.starts import Starts
from bridge.loop.timetable import Timetable
from bridge.metrics import BridgeMetrics
from bridge.partitions.assignment import Assignment
from bridge.partitions.parked import ParkedPartition
from bridge.pauses.pauses import Pauses
from bridge.pauses.queues import Queues
from bridge.pauses.sources import Sources
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.topics.names import TopicNames
from bridge.topics.needed import needed
from bridge.upkeep.changed_waits import ChangedWaits
from bridge.upkeep.decided import Decided
from bridge.upkeep.gauges import Gauges
from bridge.upkeep.gone import Looking
from bridge.upkeep.kafka_state import KafkaState
from bridge.upkeep.needs import Needs
from bridge.upkeep.stuck import Search
from bridge.upkeep.suspects import Suspects

#: Seconds for an answer of the ledger (tried twice); more than a wait for the disk, less than a shutdown may take.
LEDGER_WITHIN = 3.0


@dataclass
class Before:
    """What there is before Kafka has answered.

    Attributes:
        now: the time (Unix) by which parked records become due, of Redis's clock as far as that is known.
    """

    settings: Settings
    routes: Routes
    broker: Broker
    catalog: Catalog
    kafka: KafkaState
    blockage: Blockage
    decided: Decided
    waits: ChangedWaits
    metrics: BridgeMetrics
    clock: Callable[[], float]
    now: Callable[[], float] = time.time

    @classmethod
    def of(
        cls, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> "Before":
        """Connects to nothing yet."""
        metrics = BridgeMetrics()
        catalog = Catalog(settings, routes.topics, needed(settings, routes))
        kafka, blockage = KafkaState(catalog, metrics), Blockage(metrics, clock)
        metrics.show_halted({}, routes.topics)
        metrics.show_policies((), routes.handlers)
        broker = Broker(app)
        decided = Decided.of(settings, metrics, broker, LEDGER_WITHIN, clock)
        waits = ChangedWaits(app, settings, routes, catalog)
        return cls(settings, routes, broker, catalog, kafka, blockage, decided, waits, metrics, clock)

    @property
    def fsyncs(self) -> bool:
        """Whether a topic's commits wait for the broker's append-only file."""
        return any(self.settings.topic(topic).handoff_durability == "fsync" for topic in self.routes.topics)


@dataclass
class Parts:
    """The parts of the loop; `search` and `gauges` are `None` without a ledger."""

    before: Before
    ledger: Ledger | None
    assignment: Assignment
    held: Held
    rests: Rests
    marks: Marks
    sizes: Sizes
    dispatch: Dispatch
    replays: Replays
    needs: Needs
    commits: Commits
    queues: Queues
    sources: Sources
    logs: Logs
    beginnings: Beginnings
    rereads: Rereads
    rewinds: Rewinds
    pauses: Pauses
    timetable: Timetable
    search: Search | None
    gauges: Gauges | None
    gone: Looking

    @property
    def unread(self) -> dict[Place, int]:
        """Records of each partition of a source that Kafka has and that were not read yet, as far as it has said where
        it ends. What is parked is not to be read before it is due.
        """
        ends = self.before.kafka.ends
        return {
            partition.place: max(0, ends[partition.place] - partition.offsets.window.stop)
            for partition in self.assignment.partitions
            if partition.place in ends and not isinstance(partition, ParkedPartition)
        }

    @property
    def due(self) -> dict[str, dict[str, float]]:
        """Deliveries that could run now if they were handed off, by queue and handler."""
        before, unread = self.before, self.unread
        halted, kept = before.decided.halts, self.needs.kept
        partitions, ripe, queue_of = self.assignment.partitions, before.kafka.ripe, before.broker.queue_of
        return due(partitions, unread, ripe, before.routes, queue_of, halted=halted, kept=kept)

    @classmethod
    def of(cls, before: Before) -> "Parts":
        """Of the cluster that has answered."""
        settings, metrics, clock, broker = before.settings, before.metrics, before.clock, before.broker
        file, cluster = settings.file, before.catalog.cluster
        ledger = Ledger.of(settings, cluster, LEDGER_WITHIN)
        assignment = Assignment(settings, before.routes, before.catalog, ledger, before.now)
        marks = Marks(ledger)
        sizes = Sizes(before.routes, ledger, broker)
        shares = Shares(file.kafka_retry_share, sizes, broker, ledger, file.kafka_pause_above)
        replays = Replays(ledger, TopicNames.of(settings), before.routes.topics, before.routes.handlers)
        dispatch = Dispatch(
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
            SourceEnds(before.catalog, LogBook(ledger).known if ledger else lambda _: {}).exists,
        )
        commits = Commits(assignment, ledger, before.fsyncs, metrics)
        after = file.kafka_stuck_after
        queues = Queues(broker, before.routes, file, metrics, ledger)
        sources = Sources(before.routes.topics, file, ledger)
        logs = Logs(ledger, assignment, commits, metrics)
        starts = Starts(settings, assignment, ledger, logs)
        # A record of a retry topic may name a handler that is none of ours any more: it goes to the default queue.
        everywhere = {*before.routes.queues, str(broker.app.conf.task_default_queue)}
        return cls(
            before=before,
            ledger=ledger,
            assignment=assignment,
            held=Held(metrics, clock),
            rests=Rests(file.kafka_retry_share, clock),
            marks=marks,
            sizes=sizes,
            dispatch=dispatch,
            replays=replays,
            needs=Needs(before.routes, ledger, broker, settings.group, metrics),
            commits=commits,
            queues=queues,
            logs=logs,
            beginnings=Beginnings(assignment, before.catalog, logs, starts, clock),
            rereads=Rereads(assignment),
            rewinds=Rewinds(assignment),
            sources=sources,
            pauses=Pauses(assignment, queues, metrics, before.catalog.source_of, sources),
            timetable=Timetable(clock),
            search=Search(Messages(broker), Suspects(ledger, metrics, after), assignment, after, queues=everywhere)
            if ledger
            else None,
            gauges=Gauges(ledger, assignment, metrics) if ledger else None,
            gone=Looking(settings, ledger, before.catalog),
        )
