"""The rebalance callbacks: assigned partitions start anew, revoked ones are given up after a last commit."""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from bridge.consumer.wiring import ConsumerParts
from bridge.errors import LedgerCannotFsync, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaError, TopicPartition

logger = logging.getLogger(__name__)


class CommitOrRestart:
    """The commit of what is safe; if data loss in the ledger is suspected, all partitions start anew instead."""

    def __init__(self, parts: ConsumerParts, consumer: Consumer) -> None:
        self._parts, self._consumer = parts, consumer

    def commit(self, wait: bool = False) -> None:
        """Commit what is safe.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        parts = self._parts
        # A commit depends on marks too.
        parts.marks.tell()
        doubt = parts.commits.commit(self._consumer, set(parts.rereads), wait=wait)
        if doubt is None:
            return
        logger.warning("%s.", doubt)
        # A halt that only Kafka still has must be known before anything is handed off again.
        parts.timetable.soon("decided")
        # Those that have not started too: some of their answers may be from before the loss.
        restart_partitions(parts, self._consumer, list(parts.assignment))

    def last(self, *, wait: bool) -> None:
        """Commit in a rebalance or at the end, where nothing may be raised."""
        blockage = self._parts.setup.blockage
        if blockage.why is not None:
            return
        try:
            self.commit(wait)
        except (LedgerCannotFsync, LedgerUnavailable) as error:
            blockage.failed(self.commit, error)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take in Kafka's answer to a commit."""
        parts = self._parts
        if parts.commits.noted(error, partitions):
            parts.setup.kafka.answers()
            parts.setup.kafka.show(parts.assignment)


#: Seconds for which the unsettled offsets of given-up partitions are remembered: Kafka's client may learn that a topic
#: is deleted, and revoke its partitions, before the bridge polls the topics.
REMEMBERED_FOR: Final = 30.0


class RebalanceHandler:
    """The rebalance callbacks of the consumer.

    Attributes:
        assigned: whether there was an assignment yet, even an empty one.
    """

    def __init__(self, parts: ConsumerParts, committing: CommitOrRestart) -> None:
        self._parts, self._committing = parts, committing
        self._given_up: dict[Place, tuple[float, range]] = {}
        self.assigned = False

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take over assigned partitions."""
        parts = self._parts
        self.assigned = True
        parts.setup.kafka.answers()
        # Paused and at any offset: the loop finds the start offset, and seeks then.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        places = [(p.topic, p.partition) for p in partitions]
        restart_partitions(parts, consumer, places)
        parts.setup.metrics.expect(places)
        parts.timetable.soon("kafka", "tell")
        if partitions:
            logger.info("assigned: %s", _format_partitions(partitions))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit what is safe, and give the partitions up."""
        # Not waited for: Kafka's answer would come too late, inside close() after the callback. The commit is sent
        # before the partitions are given up, and Kafka takes it first.
        self._committing.last(wait=False)
        self._give_up(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give up partitions that the group has already taken."""
        logger.warning("the group went on without this bridge: its partitions are assigned to others, or deleted.")
        self._give_up(consumer, partitions)

    def unsettled(self, topics: Collection[str]) -> dict[Place, range]:
        """Return the last known unsettled offsets of these topics' partitions, lately given-up ones included."""
        lately = {place: offsets for place, (_, offsets) in self._lately().items()}
        known = {**lately, **self._known(self._parts.assignment)}
        return {place: offsets for place, offsets in known.items() if place[0] in topics}

    def _known(self, places: Iterable[Place]) -> dict[Place, range]:
        assignment, ends = self._parts.assignment, self._parts.setup.kafka.ends
        unsettled = {}
        for place in places:
            if place in ends:
                low = assignment.low.get(place, 0)
                unsettled[place] = range(max(low, assignment.committed.get(place, low)), ends[place])
        return unsettled

    def _lately(self) -> dict[Place, tuple[float, range]]:
        oldest = self._parts.setup.clock() - REMEMBERED_FOR
        return {place: given_up for place, given_up in self._given_up.items() if given_up[0] >= oldest}

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        now = self._parts.setup.clock()
        self._given_up = self._lately() | {place: (now, offsets) for place, offsets in self._known(places).items()}
        give_up_partitions(self._parts, places)
        if partitions:
            logger.info("revoked: %s", _format_partitions(partitions))
        consumer.incremental_unassign(partitions)


def _format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))


def restart_partitions(parts: ConsumerParts, consumer: Consumer, places: Collection[Place]) -> None:
    """Pause partitions until their start offset is found; nothing that was known of them counts."""
    if not places:
        return
    parts.held.drop(places)
    parts.rereads.forget(places)
    parts.starts.add(places)
    parts.pauses.begin(consumer, places)


def give_up_partitions(parts: ConsumerParts, places: Collection[Place]) -> None:
    """Forget partitions that another bridge has now, or that are deleted."""
    parts.assignment.remove(places)
    parts.held.drop(places)
    parts.starts.forget(places)
    parts.rereads.forget(places)
    parts.pauses.forget(places)
    parts.setup.kafka.forget(places)
    parts.setup.metrics.forget(places)
