"""The jobs that a running bridge repeats between two hand-offs, each with its period."""

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

#: Seconds between two looks at each.
FATES_EVERY: Final = 0.05
COMMIT_EVERY: Final = 1.0
#: Waiting for the disk takes up to a second (`appendfsync everysec`), in which nothing else is done.
FSYNC_EVERY: Final = 5.0
QUEUES_EVERY: Final = 0.5
DECIDED_EVERY: Final = 0.5
#: It costs Redis a millisecond or so where messages are large.
DEPTHS_EVERY: Final = 1.0
SOURCES_EVERY: Final = 1.0
NEEDS_EVERY: Final = 0.5
REPLAYS_EVERY: Final = 5.0
KAFKA_EVERY: Final = 5.0
STUCK_EVERY: Final = 60.0
AUDIT_EVERY: Final = 30.0
RENEW_EVERY: Final = 60.0
#: Deliveries handed off after which the queues are looked at all the same.
LOOK_AFTER: Final = 5_000


class PeriodicJob(NamedTuple):
    """What is done, and the seconds between two times."""

    name: str
    every: float
    do: Callable[[], None]


class PeriodicJobs:
    """Each at its time; while nothing can be handed off, at Kafka alone.

    Attributes:
        transactions: those that hold back partitions of this bridge.
    """

    def __init__(
        self, parts: ConsumerParts, consumer: Consumer, committing: CommitOrRestart, subscription: Subscription
    ) -> None:
        self._parts, self._consumer, self._subscription = parts, consumer, subscription
        self._since_queues = 0
        self.transactions = TransactionWatch(parts.before.catalog)
        file = parts.before.settings.file
        self._jobs = (
            PeriodicJob("fates", FATES_EVERY, self._fates),
            PeriodicJob("commit", FSYNC_EVERY if parts.before.fsyncs else COMMIT_EVERY, committing.commit),
            PeriodicJob("queues", QUEUES_EVERY, self._queues),
            PeriodicJob("depths", DEPTHS_EVERY, parts.queues.weigh),
            PeriodicJob("sources", SOURCES_EVERY, self._sources),
            PeriodicJob("needs", NEEDS_EVERY, parts.needs.look),
            PeriodicJob("decided", DECIDED_EVERY, parts.before.decided.look),
            PeriodicJob("replays", REPLAYS_EVERY, parts.replays.tell),
            PeriodicJob("kafka", KAFKA_EVERY, self._kafka),
            PeriodicJob("stuck", min(STUCK_EVERY, file.kafka_stuck_after), self._stuck),
            PeriodicJob("audit", AUDIT_EVERY, self._audit),
            PeriodicJob("gone", DELETED_TOPICS_EVERY, parts.gone.begin),
            PeriodicJob("renew", min(RENEW_EVERY, file.kafka_ledger_days * 86_400 / 4), self._renew),
        )

    def handed_off(self, count: int) -> None:
        """So many deliveries went out: after many, the queues are looked at before their time."""
        self._since_queues += count
        if self._since_queues >= LOOK_AFTER:
            self._parts.timetable.soon("queues")

    def look(self) -> None:
        """Do what is due; take in what Kafka has answered; begin, and read again, what can."""
        parts = self._parts
        blockage, kafka = parts.before.blockage, parts.before.kafka
        for job in self._jobs:
            if (job.name == "kafka" or blockage.why is None) and parts.timetable.due(job.name, job.every):
                blockage.attempt(job.do)
        kafka.hear(parts.assignment)
        self._subscription.keep()
        anew = [place for place in kafka.made_anew(parts.assignment.logs) if place in parts.assignment]
        restart_partitions(parts, self._consumer, anew)
        for act in (self._reread, self._begin):
            if blockage.why is None:
                blockage.attempt(act)

    def _fates(self) -> None:
        """See how what was handed out has ended: for the commit, and for what waits behind it."""
        parts = self._parts
        watched = [partition for partition in parts.assignment.partitions if partition.watched]
        if parts.ledger is None or not watched:
            return
        seen = read_handed_fates(parts.ledger, watched)
        for undone in seen.undone:
            self._undone(undone)
        parts.marks.add(seen.marks)
        parts.marks.tell()

    def _undone(self, undone: LostFates) -> None:
        partition, offset, count = undone
        logger.warning("%s-%d: the ledger has lost fates from offset %d on: read again.", *partition.place, offset)
        if count:
            logger.warning("%d deliveries were done, and the ledger has lost it: they are handed out again.", count)
            self._parts.before.metrics.undone.inc(count)
        self._parts.rereads.ask(partition, offset)
        # A halt that only Kafka has by now must be known before anything is handed off again.
        self._parts.timetable.soon("decided")

    def _queues(self) -> None:
        self._since_queues = 0
        self._parts.queues.look()

    def _sources(self) -> None:
        kafka = self._parts.before.kafka
        self._parts.sources.look(kafka.dying, kafka.parked)

    def _kafka(self) -> None:
        self._parts.before.waits.see(self._parts.before.decided.policies)
        self._parts.before.kafka.ask(self._parts.assignment)
        if self._parts.sources.letters.wanted:
            self._parts.before.kafka.ask_letters()
        self._subscription.tell_orphans()
        self._pass_markers()

    def _pass_markers(self) -> None:
        """Take in where Kafka's client stands: a transaction's marker, or what it took back, is no record to be read.

        A sought position is not known until something was read from there, so that what is read again is never passed.
        """
        parts = self._parts
        busy = {*parts.beginnings, *parts.rereads, *parts.held.records}
        idle = [
            each
            for each in parts.assignment.partitions
            if each.place not in busy
            and parts.before.kafka.ends.get(each.place, 0) > each.offsets.window.stop
            and not (isinstance(each, RetryPartition) and each.rewind is not None)
        ]
        ends = parts.before.kafka.ends
        sources = [each for each in idle if not isinstance(each, RetryPartition)]
        self.transactions.look({each.place: (each.offsets.window.stop, ends[each.place]) for each in sources})
        if not idle:
            return
        stands = self._consumer.position([TopicPartition(*each.place) for each in idle])
        for partition, at in zip(idle, stands, strict=True):
            # What expired before it was read is no marker: the next record tells.
            if at.offset > partition.offsets.window.stop >= parts.logs.low(self._consumer, partition.place):
                marks = partition.pass_to(at.offset)
                if parts.ledger is not None:
                    parts.marks.add(marks)

    def _stuck(self) -> None:
        search = self._parts.search
        if search is None:
            return
        for partition, offset in search.go_on():
            self._parts.rereads.ask(partition, offset)
        if search.more:
            self._parts.timetable.soon("stuck")

    def _audit(self) -> None:
        if self._parts.gauges is not None:
            self._parts.gauges.show(self._parts.before.kafka.ends)

    def _renew(self) -> None:
        if self._parts.ledger is not None:
            renew_ledger_pages(self._parts.ledger, self._parts.assignment.partitions)

    def _reread(self) -> None:
        for place in self._parts.rereads.carry_out(self._consumer):
            self._parts.held.drop([place])

    def _begin(self) -> None:
        parts = self._parts
        if any(parts.beginnings):
            parts.commits.know()
        for place, end in parts.beginnings.advance(self._consumer):
            parts.before.kafka.began(place, end)


def renew_ledger_pages(ledger: Ledger, partitions: Iterable[Partition]) -> None:
    """Let no page expire on which the commit still waits for something, however long that is under way.

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
