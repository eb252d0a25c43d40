"""Partitions come and go: called by Kafka's client inside poll()."""

import logging
from collections.abc import Iterable

from bridge.kafka import Consumer, TopicPartition
from bridge.loop.committing import Committing
from bridge.loop.parts import Parts
from bridge.loop.places import begin_anew, give_up

logger = logging.getLogger(__name__)


class Rebalances:
    """What the group gives this bridge, and takes from it.

    Attributes:
        assigned: whether the group has given anything yet, were it nothing.
    """

    def __init__(self, parts: Parts, committing: Committing) -> None:
        self._parts, self._committing = parts, committing
        self.assigned = False

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """These are ours."""
        parts = self._parts
        self.assigned = True
        parts.before.kafka.answers()
        # Paused, and at some offset: where to begin is found out in the loop, and sought then.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        places = [(p.topic, p.partition) for p in partitions]
        begin_anew(parts, consumer, places)
        parts.before.metrics.expect(places)
        parts.timetable.soon("kafka", "tell")
        if partitions:
            logger.info("assigned: %s", _shown(partitions))

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

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        give_up(self._parts, {(p.topic, p.partition) for p in partitions})
        if partitions:
            logger.info("revoked: %s", _shown(partitions))
        consumer.incremental_unassign(partitions)


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
