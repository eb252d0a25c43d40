"""Partitions of retry topics that were read farther than is held: what lies there is read again when it is due soon."""

import logging
from collections.abc import Collection

from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.partitions.assignment import Assignment
from bridge.records.place import Place

logger = logging.getLogger(__name__)


class Rewinds:
    """Until the consumer is back at the first record that is not held, what comes of that partition is left out."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def carry_out(self, consumer: Consumer, elsewhere: Collection[Place]) -> None:
        """Seek; what is not possible yet is done with the next call.

        Parameters:
            elsewhere: partitions that are about to be read from another offset.
        """
        for partition in self._assignment.parked:
            if partition.rewind is None or partition.place in elsewhere:
                continue
            epoch = self._assignment.epoch_below(partition.place, partition.rewind)
            try:
                consumer.seek(TopicPartition(*partition.place, partition.rewind, leader_epoch=epoch))
            except KafkaException as error:
                logger.debug("%s-%d cannot be read again yet: %s", *partition.place, error.args[0].str())
                continue
            partition.rewind = None
