"""Records as messages of Celery's, none larger than it may be, and as many of them as one step may carry (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.handoff.templates import Outgoing
from bridge.kafka import Record
from bridge.ledger import Account
from bridge.partitions.partition import Partition
from bridge.partitions.turns import Group
from bridge.records.header import Row, header_of
from bridge.records.naming import batch_id, label
from bridge.records.row import row_of

#: Most deliveries of one step of the ledger: a script stops all else in Redis while it runs.
STEP: Final = 5_000
#: Most messages of Celery's in one step; with the next, what one step may send to Redis at the most.
STEP_MESSAGES: Final = 1_000
#: Most bytes of keys, values and headers that one message carries, if it carries more than one delivery.
MESSAGE_BYTES: Final = 1_000_000
#: Most of those bytes in one step; a single larger message goes alone.
STEP_BYTES: Final = 12_000_000


@dataclass(frozen=True, slots=True)
class Packed:
    """A message that is ready to go out.

    Attributes:
        group: what it carries.
        size: bytes of keys, values and headers.
    """

    partition: Partition
    group: Group
    outgoing: Outgoing
    size: int

    @property
    def account(self) -> Account:
        """Whose fates its deliveries have."""
        return self.partition.accounts[self.group.handler]


def pack(
    partition: Partition, group: Group, records: Sequence[Record], cluster: str, bridge_group: str
) -> tuple[Packed, list[int]]:
    """A group as a message, and the offsets of what would make it too large."""
    rows = [row_of(record) for record in records]
    fitting, size = _fitting(rows)
    left, fits = group.offsets[fitting:], Group(group.handler, group.offsets[:fitting], group.why)
    topic, number = partition.topic, partition.number
    outgoing = Outgoing(
        group.handler,
        batch_id(topic, number, fits.offsets, group.handler),
        label(topic, number, fits.offsets),
        header_of(topic, number, cluster, bridge_group, partition.topic_id, partition.chosen.order, rows[:fitting]),
        group.why,
    )
    return Packed(partition, fits, outgoing, size), left


def step_from(packed: Sequence[Packed], start: int) -> Sequence[Packed]:
    """As many from `start` on as one step may carry."""
    count, size, end = 0, 0, start
    while end < len(packed) and end - start < STEP_MESSAGES:
        count += len(packed[end].group.offsets)
        size += packed[end].size
        if end > start and (count > STEP or size > STEP_BYTES):
            break
        end += 1
    return packed[start:end]


def _fitting(rows: Sequence[Row]) -> tuple[int, int]:
    """How many of these rows, one at least, one message may carry, and their bytes."""
    total = 0
    for number, each in enumerate(rows):
        size = each.size
        if total + size > MESSAGE_BYTES and number:
            return number, total
        total += size
    return len(rows), total
