"""The rebalance callbacks: assigned partitions are started, revoked ones are given up after a last commit."""

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
    """The commit of safe offsets; if the ledger may have lost data, all partitions are restarted instead.

    Parameters:
        read_fates: polls the fates on which the commit depends; it may raise LedgerUnavailable.
    """

    def __init__(
        self,
        consumer: Consumer,
        commits: OffsetCommits,
        read_fates: Callable[[], None],
        marks: PendingMarks,
        reads: PartitionReads,
        blockage: HandoffBackoff,
        timetable: Timetable,
    ) -> None:
        self._consumer, self._commits, self._marks, self._reads = consumer, commits, marks, reads
        self._read_fates = read_fates
        self._blockage, self._timetable = blockage, timetable

    def commit(self, wait: bool = False) -> None:
        """Commit the safe offsets, or restart all partitions if the ledger may have lost data.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        self._read_fates()
        # A commit also depends on marks that are not written yet.
        self._marks.write()
        suspicion = self._commits.commit(self._consumer, set(self._reads.rereads), wait=wait)
        if suspicion is None:
            return
        logger.warning("%s.", suspicion)
        # A halt that only Kafka still has must be known before anything is handed off again.
        self._timetable.soon("decided")
        # Also those that are still starting: some of their answers may be from before the loss.
        self._reads.restart(self._consumer, list(self._reads.assignment))

    def commit_last(self, *, wait: bool) -> None:
        """Commit in a rebalance or at the end, when no exception may be raised."""
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
        # Offset 0 stands for none: the partitions are paused until the loop has found the start offset, and seeks.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        places = [(p.topic, p.partition) for p in partitions]
        self._reads.restart(consumer, places)
        self._metrics.expect(places)
        self._timetable.soon("kafka", "tell")
        if partitions:
            logger.info("assigned: %s", _format_partitions(partitions))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit the safe offsets, and give the partitions up."""
        # The bridge does not wait: Kafka's answer would come too late, inside close() after the callback. Kafka takes
        # the commit first, because it is sent before the partitions are given up.
        self._committing.commit_last(wait=False)
        self._give_up(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give up partitions that the group has already taken."""
        logger.warning("the group went on without this bridge: its partitions may be assigned to others, or deleted.")
        self._give_up(consumer, partitions)

    def unsettled(self, topics: Collection[str]) -> dict[Place, range]:
        """Return the last known unsettled offsets of these topics' partitions, also of recently given-up ones."""
        given_up = {place: offsets for place, (_, offsets) in self._find_recently_given_up().items()}
        unsettled = given_up | self._find_uncommitted_ranges(self._reads.assignment)
        return {place: offsets for place, offsets in unsettled.items() if place[0] in topics}

    def _find_uncommitted_ranges(self, places: Iterable[Place]) -> dict[Place, range]:
        assignment, ends = self._reads.assignment, self._kafka.ends
        unsettled = {}
        for place in places:
            if place in ends:
                low = assignment.low.get(place, 0)
                unsettled[place] = range(max(low, assignment.committed.get(place, low)), ends[place])
        return unsettled

    def _find_recently_given_up(self) -> dict[Place, tuple[float, range]]:
        oldest = self._clock() - REMEMBERED_FOR
        return {place: given_up for place, given_up in self._given_up.items() if given_up[0] >= oldest}

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        now = self._clock()
        unsettled = {place: (now, offsets) for place, offsets in self._find_uncommitted_ranges(places).items()}
        self._given_up = self._find_recently_given_up() | unsettled
        self._reads.give_up(places)
        self._kafka.forget(places)
        self._metrics.forget(places)
        if partitions:
            logger.info("revoked: %s", _format_partitions(partitions))
        consumer.incremental_unassign(partitions)


def _format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
