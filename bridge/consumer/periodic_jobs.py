"""The periodic jobs of a running bridge, done between two hand-offs."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from bridge.consumer.rebalance import CommitOrRestart, restart_partitions
from bridge.consumer.subscription import Subscription
from bridge.consumer.wiring import ConsumerParts
from bridge.dispatch.fate_sync import LostFates, read_handed_fates
from bridge.jobs.deleted_topics import DELETED_TOPICS_EVERY
from bridge.jobs.open_transactions import TransactionWatch
from bridge.kafka.clients import Consumer, TopicPartition
from bridge.ledger import Ledger
from bridge.partitions.partition import Partition
from bridge.partitions.retry_partition import RetryPartition

logger = logging.getLogger(__name__)

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
REPLAYS_EVERY: Final = 5.0
KAFKA_EVERY: Final = 5.0
STUCK_EVERY: Final = 60.0
AUDIT_EVERY: Final = 30.0
RENEW_EVERY: Final = 60.0
#: Deliveries handed off after which the queues are polled early.
POLL_QUEUES_AFTER: Final = 5_000


class PeriodicJob(NamedTuple):
    """A job and the seconds between two runs of it."""

    name: str
    every: float
    do: Callable[[], None]


class PeriodicJobs:
    """The jobs of the loop, each when it is due; while nothing can be handed off, only that of Kafka.

    Attributes:
        transactions: the open transactions that hold back partitions of this bridge.
    """

    def __init__(
        self, parts: ConsumerParts, consumer: Consumer, committing: CommitOrRestart, subscription: Subscription
    ) -> None:
        self._parts, self._consumer, self._subscription = parts, consumer, subscription
        self._since_queues = 0
        self.transactions = TransactionWatch(parts.setup.catalog)
        file = parts.setup.settings.file
        self._jobs = (
            PeriodicJob("fates", FATES_EVERY, self._fates),
            PeriodicJob("commit", FSYNC_EVERY if parts.setup.fsyncs else COMMIT_EVERY, committing.commit),
            PeriodicJob("queues", QUEUES_EVERY, self._queues),
            PeriodicJob("depths", DEPTHS_EVERY, parts.queues.weigh),
            PeriodicJob("sources", SOURCES_EVERY, self._sources),
            PeriodicJob("needs", NEEDS_EVERY, parts.gates.update),
            PeriodicJob("decided", DECIDED_EVERY, parts.setup.decisions.update),
            PeriodicJob("replays", REPLAYS_EVERY, parts.replays.tell),
            PeriodicJob("kafka", KAFKA_EVERY, self._kafka),
            PeriodicJob("stuck", min(STUCK_EVERY, file.kafka_stuck_after), self._stuck),
            PeriodicJob("audit", AUDIT_EVERY, self._audit),
            PeriodicJob("gone", DELETED_TOPICS_EVERY, parts.deleted_topics.start),
            PeriodicJob("renew", min(RENEW_EVERY, file.kafka_ledger_days * 86_400 / 4), self._renew),
        )

    def handed_off(self, count: int) -> None:
        """Count deliveries that went out: after many, the queues are polled early."""
        self._since_queues += count
        if self._since_queues >= POLL_QUEUES_AFTER:
            self._parts.timetable.soon("queues")

    def run_due(self) -> None:
        """Run the jobs that are due, take in Kafka's answers, and start or read again the partitions that can."""
        parts = self._parts
        blockage, kafka = parts.setup.blockage, parts.setup.kafka
        for job in self._jobs:
            if (job.name == "kafka" or blockage.why is None) and parts.timetable.due(job.name, job.every):
                blockage.attempt(job.do)
        kafka.hear(parts.assignment)
        self._subscription.refresh()
        anew = [place for place in kafka.made_anew(parts.assignment.logs) if place in parts.assignment]
        restart_partitions(parts, self._consumer, anew)
        for step in (self._reread, self._begin):
            if blockage.why is None:
                blockage.attempt(step)

    def _fates(self) -> None:
        """Poll the fates of handed deliveries, for the commit and for deliveries behind them."""
        parts = self._parts
        watched = [partition for partition in parts.assignment.partitions if partition.watched]
        if parts.ledger is None or not watched:
            return
        seen = read_handed_fates(parts.ledger, watched)
        for lost in seen.undone:
            self._read_again(lost)
        parts.marks.add(seen.marks)
        parts.marks.tell()

    def _read_again(self, lost: LostFates) -> None:
        partition, offset, count = lost
        logger.warning("%s-%d: the ledger has lost fates from offset %d on: read again.", *partition.place, offset)
        if count:
            logger.warning("the ledger lost that %d deliveries were done: they run again.", count)
            self._parts.setup.metrics.undone.inc(count)
        self._parts.rereads.ask(partition, offset)
        # A halt that only Kafka still has must be known before anything is handed off again.
        self._parts.timetable.soon("decided")

    def _queues(self) -> None:
        self._since_queues = 0
        self._parts.queues.look()

    def _sources(self) -> None:
        kafka = self._parts.setup.kafka
        self._parts.sources.look(kafka.dying, kafka.parked)

    def _kafka(self) -> None:
        self._parts.setup.policy_topics.see(self._parts.setup.decisions.policies)
        self._parts.setup.kafka.ask(self._parts.assignment)
        if self._parts.sources.letters.wanted:
            self._parts.setup.kafka.ask_letters()
        self._subscription.log_orphans()
        self._pass_markers()

    def _pass_markers(self) -> None:
        """Pass the offsets that the client has passed: a transaction's marker or an aborted record is never returned.

        The position is unknown after a seek until something was read, so records that are read again are not passed.
        """
        parts = self._parts
        busy = {*parts.starts, *parts.rereads, *parts.held.records}
        idle = [
            partition
            for partition in parts.assignment.partitions
            if partition.place not in busy
            and parts.setup.kafka.ends.get(partition.place, 0) > partition.offsets.window.stop
            and not (isinstance(partition, RetryPartition) and partition.rewind is not None)
        ]
        ends = parts.setup.kafka.ends
        sources = [partition for partition in idle if not isinstance(partition, RetryPartition)]
        self.transactions.poll(
            {partition.place: (partition.offsets.window.stop, ends[partition.place]) for partition in sources}
        )
        if not idle:
            return
        positions = self._consumer.position([TopicPartition(*partition.place) for partition in idle])
        for partition, position in zip(idle, positions, strict=True):
            # A record that expired before it was read is no marker: the next record tells.
            if position.offset > partition.offsets.window.stop >= parts.logs.low(self._consumer, partition.place):
                marks = partition.pass_to(position.offset)
                if parts.ledger is not None:
                    parts.marks.add(marks)

    def _stuck(self) -> None:
        search = self._parts.stuck_finder
        if search is None:
            return
        for partition, offset in search.go_on():
            self._parts.rereads.ask(partition, offset)
        if search.more:
            self._parts.timetable.soon("stuck")

    def _audit(self) -> None:
        if self._parts.audit_metrics is not None:
            self._parts.audit_metrics.show(self._parts.setup.kafka.ends)

    def _renew(self) -> None:
        if self._parts.ledger is not None:
            renew_ledger_pages(self._parts.ledger, self._parts.assignment.partitions)

    def _reread(self) -> None:
        for place in self._parts.rereads.carry_out(self._consumer):
            self._parts.held.drop([place])

    def _begin(self) -> None:
        parts = self._parts
        if any(parts.starts):
            parts.commits.know()
        for place, end in parts.starts.advance(self._consumer):
            parts.setup.kafka.began(place, end)


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
