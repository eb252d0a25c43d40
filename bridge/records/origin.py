"""Whose a record of one of our topics is: where its message first lay, the handler, the consumer group."""

from typing import Final, NamedTuple

from bridge.records.naming import batch_id

#: Kafka's own bounds: partitions and offsets.
PARTITIONS: Final = 2**31
OFFSETS: Final = 2**63


class Origin(NamedTuple):
    """Whose a record is: where its message first lay, the handler, the consumer group.

    `topic_id` is that of the log; empty in a dead letter of an older version.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    handler: str
    group: str

    @property
    def identity(self) -> str:
        """`orders-3-1234:orders.handlers.charge`: the delivery's."""
        return batch_id(self.topic, self.partition, (self.offset,), self.handler)
