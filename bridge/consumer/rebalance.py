"""Assigned and revoked partitions: each begins anew or is given up, after a last commit."""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from bridge.consumer.wiring import ConsumerParts
from bridge.errors import LedgerCannotFsync, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaError, TopicPartition

logger = logging.getLogger(__name__)


class CommitOrRestart:
    """Where the ledger may have lost fates nothing is committed, and everything begins anew."""

    def __init__(self, parts: ConsumerParts, consumer: Consumer) -> None:
        self._parts, self._consumer = parts, consumer

    def commit(self, wait: bool = False) -> None:
        """Commit what is safe.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        parts = self._parts
        # A commit rests on marks too.
        parts.marks.tell()
        doubt = parts.commits.commit(self._consumer, set(parts.rereads), wait=wait)
        if doubt is None:
            return
        logger.warning("%s.", doubt)
        # A halt that only Kafka has by now must be known before anything is handed off again.
        parts.timetable.soon("decided")
        # Those that have not begun too: half of what is known of them may be of before.
        restart_partitions(parts, self._consumer, list(parts.assignment))

    def last(self, *, wait: bool) -> None:
        """In a rebalance and at the end, where nothing may be raised."""
        blockage = self._parts.before.blockage
        if blockage.why is not None:
            return
        try:
            self.commit(wait)
        except (LedgerCannotFsync, LedgerUnavailable) as error:
            blockage.failed(self.commit, error)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Kafka has answered to a commit."""
        parts = self._parts
        if parts.commits.noted(error, partitions):
            parts.before.kafka.answers()
            parts.before.kafka.show(parts.assignment)


#: Seconds for which it is remembered what was unsettled of partitions that were given up: Kafka's client may hear that
#: a topic is deleted, and take its partitions, before the bridge sees it at its next look.
REMEMBERED_FOR: Final = 30.0


class RebalanceHandler:
    """What the group gives this bridge, and takes from it.

    Attributes:
        assigned: whether the group has given anything yet, were it nothing.
    """

    def __init__(self, parts: ConsumerParts, committing: CommitOrRestart) -> None:
        self._parts, self._committing = parts, committing
        self._given_up: dict[Place, tuple[float, range]] = {}
        self.assigned = False

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """These are ours."""
        parts = self._parts
        self.assigned = True
        parts.before.kafka.answers()
        # Paused, and at some offset: where to begin is found out in the loop, and sought then.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        places = [(p.topic, p.partition) for p in partitions]
        restart_partitions(parts, consumer, places)
        parts.before.metrics.expect(places)
        parts.timetable.soon("kafka", "tell")
        if partitions:
            logger.info("assigned: %s", _format_partitions(partitions))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """These are to be another bridge's, after what is safe was committed."""
        # Not waited for: in here Kafka's answer would come too late, inside close() after the callback. It is sent
        # before all that gives the partitions up, and Kafka takes it first.
        self._committing.last(wait=False)
        self._give_up(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """These are another bridge's already."""
        logger.warning("the group went on without this bridge; its partitions are another's now, or gone.")
        self._give_up(consumer, partitions)

    def unsettled(self, topics: Collection[str]) -> dict[Place, range]:
        """The offsets that were not safe to commit when that was last known, of these topics' partitions: of those that
        are ours, and of those that were a moment ago, if Kafka had said where they end.
        """
        lately = {place: offsets for place, (_, offsets) in self._lately().items()}
        known = {**lately, **self._known(self._parts.assignment)}
        return {place: offsets for place, offsets in known.items() if place[0] in topics}

    def _known(self, places: Iterable[Place]) -> dict[Place, range]:
        assignment, ends = self._parts.assignment, self._parts.before.kafka.ends
        found = {}
        for place in places:
            if place in ends:
                low = assignment.low.get(place, 0)
                found[place] = range(max(low, assignment.committed.get(place, low)), ends[place])
        return found

    def _lately(self) -> dict[Place, tuple[float, range]]:
        oldest = self._parts.before.clock() - REMEMBERED_FOR
        return {place: given_up for place, given_up in self._given_up.items() if given_up[0] >= oldest}

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        now = self._parts.before.clock()
        self._given_up = self._lately() | {place: (now, offsets) for place, offsets in self._known(places).items()}
        give_up_partitions(self._parts, places)
        if partitions:
            logger.info("revoked: %s", _format_partitions(partitions))
        consumer.incremental_unassign(partitions)


def _format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))


def restart_partitions(parts: ConsumerParts, consumer: Consumer, places: Collection[Place]) -> None:
    """Pause these until it is found out where they begin; nothing that was known of them counts."""
    if not places:
        return
    parts.held.drop(places)
    parts.rereads.forget(places)
    parts.beginnings.add(places)
    parts.pauses.begin(consumer, places)


def give_up_partitions(parts: ConsumerParts, places: Collection[Place]) -> None:
    """These are another bridge's now, or gone."""
    parts.assignment.remove(places)
    parts.held.drop(places)
    parts.beginnings.forget(places)
    parts.rereads.forget(places)
    parts.pauses.forget(places)
    parts.before.kafka.forget(places)
    parts.before.metrics.forget(places)
