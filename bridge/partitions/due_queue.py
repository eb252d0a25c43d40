"""The due queue of a retry partition: which records are in memory, which are due, which form a batch (pure).

Parked records stay in Kafka. Only those that are due within seconds are in memory, so that a burst starts in time, and
a few later ones, so that a record with a wrong clock keeps no other waiting.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bridge.formats.delivery import Delivery
from bridge.formats.retry_record import RetryRecord
from bridge.ledger import Account
from bridge.partitions.ordering import MESSAGE_BYTES, DeliveryGroup, Portion, Portions
from bridge.partitions.slow_handlers import KEPT, KEPT_BYTES

#: Seconds before its due time from which on a record is held (AHEAD), and from which on stopped reading resumes (LOW).
AHEAD: Final = 5.0
LOW: Final = 2.5
#: Most records that are due later, and their bytes, that one partition holds.
FAR: Final = 100
FAR_BYTES: Final = 1_000_000
#: Most records and bytes that one partition holds; reading resumes at half.
MOST: Final = 5_000
MOST_BYTES: Final = 16_000_000
#: The same for all partitions of a bridge together; and the few that each may hold in any case.
ALL: Final = 20_000
ALL_BYTES: Final = 64_000_000
FEW: Final = 200
FEW_BYTES: Final = 1_000_000


class ReadAheadBudget:
    """The records and bytes that all partitions of a bridge hold together."""

    def __init__(self) -> None:
        self.records = self.bytes = 0

    @property
    def spent(self) -> bool:
        """Return whether each partition may hold only its few."""
        return self.records >= ALL or self.bytes >= ALL_BYTES


class ReadAhead:
    """The records that one partition holds, by due time (seconds since the epoch)."""

    def __init__(self, budget: ReadAheadBudget) -> None:
        self._budget = budget
        self._waiting: list[tuple[float, int]] = []
        self._far: list[tuple[float, int]] = []
        self._stopped: float | None = None
        self.records = self.bytes = 0

    def take_in(self, offset: int, due: float, size: int, now: float) -> bool:
        """Hold a record; return whether there was room. If not, reading stops there until `may_read`."""
        if self._full:
            self._stopped = 0.0
            return False
        if due > now + AHEAD:
            self._far = [each for each in self._far if each[0] > now + AHEAD]
            if self._far and self._far_enough(size):
                half, _ = self._far[min(len(self._far), FAR // 2) - 1]
                self._stopped = min(due, half) - LOW
                return False
            insort(self._far, (due, size))
        self._stopped = None
        self._count(1, size)
        heappush(self._waiting, (due, offset))
        return True

    def pop_due(self, now: float) -> list[int]:
        """Return the offsets that became due since the last call, the earliest first."""
        found = []
        while self._waiting and self._waiting[0][0] <= now:
            found.append(heappop(self._waiting)[1])
        return found

    def release(self, size: int) -> None:
        """Release a record."""
        self._count(-1, -size)

    def release_all(self) -> None:
        """Release all records."""
        self._budget.records -= self.records
        self._budget.bytes -= self.bytes
        self.records = self.bytes = 0

    @property
    def next(self) -> float | None:
        """Return when the next held record is due; `None` if none is held."""
        return self._waiting[0][0] if self._waiting else None

    def may_read(self, now: float) -> bool:
        """Return whether reading may go on."""
        if self._stopped is None:
            return True
        if now < self._stopped or self._full or (self._over_half and not self._stopped):
            return False
        self._stopped = None
        return True

    @property
    def full(self) -> bool:
        """Return whether reading stopped because enough is held, not because nothing more is due."""
        return self._stopped == 0.0

    @property
    def _full(self) -> bool:
        if self.records >= MOST or self.bytes >= MOST_BYTES:
            return True
        return self._budget.spent and (self.records >= FEW or self.bytes >= FEW_BYTES)

    @property
    def _over_half(self) -> bool:
        return self.records > MOST // 2 or self.bytes > MOST_BYTES // 2

    def _far_enough(self, size: int) -> bool:
        return len(self._far) >= FAR or sum(each for _, each in self._far) + size > FAR_BYTES

    def _count(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self._budget.records += records
        self._budget.bytes += size


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

    @property
    def since(self) -> float | None:
        """Return when (Unix time) the first of them was due; `None` if none is."""
        due = min((held.parked.due for records in self._by_owner.values() for held in records.values()), default=None)
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
