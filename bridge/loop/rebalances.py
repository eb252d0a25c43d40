"""Partitions come and go: called by Kafka's client inside poll()."""

import logging
from collections.abc import Collection, Iterable
from typing import Final

from bridge.kafka import Consumer, TopicPartition
from bridge.loop.committing import Committing
from bridge.loop.parts import Parts
from bridge.loop.places import begin_anew, give_up
from bridge.records.place import Place

logger = logging.getLogger(__name__)

#: Seconds for which it is remembered what was unsettled of partitions that were given up: Kafka's client may hear that
#: a topic is deleted, and take its partitions, before the bridge sees it at its next look.
REMEMBERED_FOR: Final = 30.0


class Rebalances:
    """What the group gives this bridge, and takes from it.

    Attributes:
        assigned: whether the group has given anything yet, were it nothing.
    """

    def __init__(self, parts: Parts, committing: Committing) -> None:
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
        give_up(self._parts, places)
        if partitions:
            logger.info("revoked: %s", _shown(partitions))
        consumer.incremental_unassign(partitions)


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
