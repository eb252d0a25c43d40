"""The rebalance callbacks: assigned partitions start anew, revoked ones are given up after a last commit."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.handoff_backoff import HandoffBackoff
from bridge.consumer.offset_commits import OffsetCommits
from bridge.consumer.read_position import PartitionReads
from bridge.dispatch.fate_sync import PendingMarks
from bridge.errors import LedgerCannotFsync, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.jobs.kafka_state import KafkaState
from bridge.jobs.timetable import Timetable
from bridge.kafka.clients import Consumer, TopicPartition

logger = logging.getLogger(__name__)


class CommitOrRestart:
    """The commit of what is safe; if data loss in the ledger is suspected, all partitions start anew instead."""

    def __init__(
        self,
        consumer: Consumer,
        commits: OffsetCommits,
        marks: PendingMarks,
        reads: PartitionReads,
        blockage: HandoffBackoff,
        timetable: Timetable,
    ) -> None:
        self._consumer, self._commits, self._marks, self._reads = consumer, commits, marks, reads
        self._blockage, self._timetable = blockage, timetable

    def commit(self, wait: bool = False) -> None:
        """Commit what is safe.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        # A commit depends on marks too.
        self._marks.write()
        doubt = self._commits.commit(self._consumer, set(self._reads.rereads), wait=wait)
        if doubt is None:
            return
        logger.warning("%s.", doubt)
        # A halt that only Kafka still has must be known before anything is handed off again.
        self._timetable.soon("decided")
        # Those that have not started too: some of their answers may be from before the loss.
        self._reads.restart(self._consumer, list(self._reads.assignment))

    def commit_last(self, *, wait: bool) -> None:
        """Commit in a rebalance or at the end, where nothing may be raised."""
        if self._blockage.why is not None:
            return
        try:
            self.commit(wait)
        except (LedgerCannotFsync, LedgerUnavailable) as error:
            self._blockage.note_failure(self.commit, error)


#: Seconds for which the unsettled offsets of given-up partitions are remembered: Kafka's client may learn that a topic
#: is deleted, and revoke its partitions, before the bridge polls the topics.
REMEMBERED_FOR: Final = 30.0


class RebalanceHandler:
    """The rebalance callbacks of the consumer.

    Attributes:
        assigned: whether there was an assignment yet, even an empty one.
    """

    def __init__(
        self,
        reads: PartitionReads,
        committing: CommitOrRestart,
        kafka: KafkaState,
        metrics: BridgeMetrics,
        timetable: Timetable,
        clock: Callable[[], float],
    ) -> None:
        self._reads, self._committing, self._kafka = reads, committing, kafka
        self._metrics, self._timetable, self._clock = metrics, timetable, clock
        self._given_up: dict[Place, tuple[float, range]] = {}
        self.assigned = False

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take over assigned partitions."""
        self.assigned = True
        self._kafka.note_answer()
        # Paused and at any offset: the loop finds the start offset, and seeks then.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        places = [(p.topic, p.partition) for p in partitions]
        self._reads.restart(consumer, places)
        self._metrics.expect(places)
        self._timetable.soon("kafka", "tell")
        if partitions:
            logger.info("assigned: %s", _format_partitions(partitions))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit what is safe, and give the partitions up."""
        # Not waited for: Kafka's answer would come too late, inside close() after the callback. The commit is sent
        # before the partitions are given up, and Kafka takes it first.
        self._committing.commit_last(wait=False)
        self._give_up(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give up partitions that the group has already taken."""
        logger.warning("the group went on without this bridge: its partitions may be assigned to others, or deleted.")
        self._give_up(consumer, partitions)

    def unsettled(self, topics: Collection[str]) -> dict[Place, range]:
        """Return the last known unsettled offsets of these topics' partitions, lately given-up ones included."""
        lately = {place: offsets for place, (_, offsets) in self._lately().items()}
        known = {**lately, **self._known(self._reads.assignment)}
        return {place: offsets for place, offsets in known.items() if place[0] in topics}

    def _known(self, places: Iterable[Place]) -> dict[Place, range]:
        assignment, ends = self._reads.assignment, self._kafka.ends
        unsettled = {}
        for place in places:
            if place in ends:
                low = assignment.low.get(place, 0)
                unsettled[place] = range(max(low, assignment.committed.get(place, low)), ends[place])
        return unsettled

    def _lately(self) -> dict[Place, tuple[float, range]]:
        oldest = self._clock() - REMEMBERED_FOR
        return {place: given_up for place, given_up in self._given_up.items() if given_up[0] >= oldest}

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        now = self._clock()
        self._given_up = self._lately() | {place: (now, offsets) for place, offsets in self._known(places).items()}
        self._reads.give_up(places)
        self._kafka.forget(places)
        self._metrics.forget(places)
        if partitions:
            logger.info("revoked: %s", _format_partitions(partitions))
        consumer.incremental_unassign(partitions)


def _format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
