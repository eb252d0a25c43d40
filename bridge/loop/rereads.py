"""Partitions that are to be read again from an earlier offset; what is settled by then is skipped."""

import logging
from collections.abc import Callable, Iterable, Iterator

from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.metrics import BridgeMetrics
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.records.place import Place

logger = logging.getLogger(__name__)


class Rereads:
    """Asked for when the ledger has lost fates, or what was stuck is open again."""

    def __init__(self, assignment: Assignment, metrics: BridgeMetrics) -> None:
        self._assignment, self._metrics = assignment, metrics
        self._from: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._from

    def __iter__(self) -> Iterator[Place]:
        return iter(self._from)

    def ask(self, partition: Partition, offset: int) -> None:
        """Not above what is in flight: begun anew, a partition knows nothing of what is below."""
        place = partition.place
        self._from[place] = min(offset, partition.offsets.window.start, self._from.get(place, offset))

    def undone(self, partition: Partition, offset: int, count: int) -> None:
        """Fates went back: read again from there, and say how much that was done will be done again."""
        place = partition.place
        logger.warning("%s-%d: the ledger has lost fates from offset %d on: read again.", *place, offset)
        if count:
            logger.warning("%d deliveries were done, and the ledger has lost it: they are handed out again.", count)
            self._metrics.undone.inc(count)
        self.ask(partition, offset)

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self._from.pop(place, None)

    def carry_out(self, consumer: Consumer, void: Callable[[Place], object]) -> None:
        """Seek, and begin each partition anew; what is not possible yet is done with the next call.

        Parameters:
            void: told of each partition whose records in hand will come again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: this one and the rest are done with the next call.
        """
        for place, offset in list(self._from.items()):
            if place in self._assignment:
                try:
                    consumer.seek(TopicPartition(*place, offset))
                except KafkaException as error:
                    logger.debug("%s-%d cannot be read again yet: %s", *place, error.args[0].str())
                    continue
                void(place)
                self._assignment.restart(place, offset)
            del self._from[place]
