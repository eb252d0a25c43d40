"""The due queue of a retry partition: which of the records that are due form a batch, and in which order they go out.

retry_read_ahead.py decides when a record in memory is due, due_time_limit.py which due time counts.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.formats.delivery import Delivery
from bridge.formats.retry_record import RetryRecord
from bridge.ledger import Account
from bridge.partitions.ordering import MESSAGE_BYTES, DeliveryGroup, Portion, Portions
from bridge.partitions.slow_handlers import KEPT, KEPT_BYTES


class BatchOwner(NamedTuple):
    """The handler and source partition of deliveries that may share a batch."""

    handler: str
    topic: str
    topic_id: str
    partition: int

    @property
    def account(self) -> Account:
        """Return the account that has the fates of the source records."""
        return Account(*self)


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A retry record in memory."""

    offset: int
    parked: RetryRecord
    size: int

    @property
    def delivery(self) -> Delivery:
        """Return the delivery that is to run again."""
        return self.parked.delivery

    @property
    def origin(self) -> int:
        """Return the offset of the source record."""
        return self.parked.delivery.message.offset

    @property
    def owner(self) -> BatchOwner:
        """Return the handler and source partition of its batch."""
        message = self.delivery.message
        return BatchOwner(self.delivery.handler, message.topic, self.parked.topic_id, message.partition)


#: The portion of a handler that was given none.
SINGLE_DELIVERY: Final = Portion(1, 1)


class DueQueue:
    """The deliveries that are due and not handed out, in the order in which they became due."""

    def __init__(self) -> None:
        self._by_owner: dict[BatchOwner, dict[int, HeldRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_owner)

    def add(self, held: HeldRecord) -> None:
        """Add a record that is due."""
        self._by_owner.setdefault(held.owner, {})[held.offset] = held

    @property
    def counts(self) -> dict[str, int]:
        """Return how many deliveries of each handler are due."""
        found: dict[str, int] = {}
        for owner, records in self._by_owner.items():
            found[owner.handler] = found.get(owner.handler, 0) + len(records)
        return found

    def find_first_due(self, without: Collection[str] = frozenset()) -> float | None:
        """Return when (Unix time) the first of them was due, those of some handlers left out; `None` if none is."""
        queues = (records for owner, records in self._by_owner.items() if owner.handler not in without)
        due = min((held.parked.due for records in queues for held in records.values()), default=None)
        return None if due is None else due / 1000

    def take(self, portions: Portions) -> list[tuple[DeliveryGroup, list[HeldRecord]]]:
        """Take the groups that may go out now; another handler or source partition is first the next time."""
        taken = [
            batch
            for owner in list(self._by_owner)
            for batch in self._take(owner, portions.get(owner.handler, SINGLE_DELIVERY))
        ]
        owners = list(self._by_owner)
        self._by_owner = {owner: self._by_owner[owner] for owner in [*owners[1:], *owners[:1]]}
        return taken

    def _take(self, owner: BatchOwner, portion: Portion) -> Iterator[tuple[DeliveryGroup, list[HeldRecord]]]:
        while owner in self._by_owner and not portion.spent and (records := self._next(owner, portion.size)):
            portion.spend()
            for held in records:
                self._drop(held)
            records.sort(key=lambda held: held.offset)
            yield DeliveryGroup(owner.handler, [held.offset for held in records], portion.why), records

    def _next(self, owner: BatchOwner, most: int) -> list[HeldRecord]:
        """Return the records of the next batch: as many as asked for, and what was parked behind each."""
        batch: dict[int, HeldRecord] = {}
        size = 0
        for held in self._by_owner[owner].values():
            size += held.size
            behind = held.delivery.after is not None and held.delivery.after in batch
            if batch and (size > MESSAGE_BYTES or (len(batch) >= most and not behind)):
                break
            batch[held.origin] = held
        return list(batch.values())

    def give_back(self, records: Sequence[HeldRecord]) -> None:
        """Put back records of one group that were not handed out: they are first again."""
        if records:
            owner = records[0].owner
            self._by_owner[owner] = {**{held.offset: held for held in records}, **self._by_owner.get(owner, {})}

    def leave_few(self, handler: str, stay: int) -> tuple[int, list[HeldRecord]]:
        """Drop a handler's records but for `stay`, or fewer large ones; return how many stay, and the dropped ones."""
        dropped: list[HeldRecord] = []
        kept = size = 0
        most = KEPT_BYTES * max(1, stay // KEPT)
        for held in [
            held for owner, records in self._by_owner.items() if owner.handler == handler for held in records.values()
        ]:
            size += held.size
            if kept < stay and (not kept or size <= most):
                kept += 1
            else:
                self._drop(held)
                dropped.append(held)
        return kept, dropped

    def _drop(self, held: HeldRecord) -> None:
        del self._by_owner[held.owner][held.offset]
        if not self._by_owner[held.owner]:
            del self._by_owner[held.owner]
