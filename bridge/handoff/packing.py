"""Records as messages of Celery's, none larger than it may be, and as many of them as one step may carry (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.handoff.templates import Outgoing
from bridge.ledger import OWN, Account
from bridge.partitions.held import Held
from bridge.partitions.parked import ParkedPartition
from bridge.partitions.partition import Partition
from bridge.partitions.turns import MESSAGE_BYTES, Group
from bridge.records.header import header_of
from bridge.records.message import Via
from bridge.records.naming import batch_id, label
from bridge.records.row import Row, row_of

#: Most deliveries of one step of the ledger: a script stops all else in Redis while it runs.
STEP: Final = 5_000
#: Most messages of Celery's in one step; with the next, what one step may send to Redis at the most.
STEP_MESSAGES: Final = 1_000
#: Most bytes of keys, values and headers in one step; a single larger message goes alone.
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
        """Whose fates its deliveries have, at the coordinates at which they were read."""
        parked = isinstance(self.partition, ParkedPartition)
        return self.partition.accounts[OWN if parked else self.group.handler]

    @property
    def parked(self) -> bool:
        """Whether it came by a retry or replay topic."""
        return isinstance(self.partition, ParkedPartition)


def pack(
    partition: Partition, group: Group, records: Sequence[Any], cluster: str, bridge_group: str
) -> tuple[Packed, list[int]]:
    """A group as a message, and the offsets of what would make it too large."""
    if isinstance(partition, ParkedPartition):
        return _pack_parked(partition, group, records, cluster, bridge_group), []
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


def _pack_parked(
    partition: ParkedPartition, group: Group, held: Sequence[Held], cluster: str, bridge_group: str
) -> Packed:
    """What comes again: under the coordinates of its origin, in the order in which it lay there."""
    whose, some = held[0].whose, sorted(held, key=lambda each: each.origin)
    offsets = [each.origin for each in some]
    rows = [Row.of(each.delivery) for each in some]
    via = Via(partition.topic, partition.number, -1, partition.topic_id)
    header = header_of(whose.topic, whose.partition, cluster, bridge_group, whose.topic_id, partition.order, rows, via)
    number = max(each.delivery.number for each in some)
    outgoing = Outgoing(
        whose.handler,
        batch_id(whose.topic, whose.partition, offsets, whose.handler) + (f"#{number}" if number else ""),
        label(whose.topic, whose.partition, offsets),
        header,
        group.why,
    )
    return Packed(partition, group, outgoing, sum(row.size for row in rows))


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
