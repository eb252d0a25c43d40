"""Partitions that are to be read again from an earlier offset; what is settled by then is skipped."""

import logging
from collections.abc import Iterable, Iterator

from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from bridge.records.place import Place

logger = logging.getLogger(__name__)


class Rereads:
    """Asked for when the ledger has lost fates, or what was stuck is open again."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._from: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._from

    def __iter__(self) -> Iterator[Place]:
        return iter(self._from)

    def ask(self, partition: Partition, offset: int) -> None:
        """Not above what is in flight: begun anew, a partition knows nothing of what is below."""
        place = partition.place
        self._from[place] = min(offset, partition.offsets.window.start, self._from.get(place, offset))

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self._from.pop(place, None)

    def carry_out(self, consumer: Consumer) -> Iterator[Place]:
        """Seek, and begin each partition anew; what is not possible yet is done with the next call.

        Yields:
            each partition whose records in hand will come again.

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
                yield place
                self._assignment.restart(place, offset)
            del self._from[place]
