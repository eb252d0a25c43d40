"""The due queue of a retry partition: how far ahead it is read, what is held in memory, what is due and which records
travel together (pure). Parked records stay in Kafka: only what is due within seconds is in memory, so that a burst
is there in time. A few later ones are held too: one with a wrong clock keeps nothing else waiting.
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

#: Seconds before they are due from which on records are held, and up to which what was read must reach.
AHEAD: Final = 5.0
LOW: Final = 2.5
#: Records that are due later than that, and their bytes, that one partition holds at most.
FAR: Final = 100
FAR_BYTES: Final = 1_000_000
#: Records and bytes that one partition holds at most; it is read on at half.
MOST: Final = 5_000
MOST_BYTES: Final = 16_000_000
#: The same for all of a bridge's together, beside what each may hold in any case.
ALL: Final = 20_000
ALL_BYTES: Final = 64_000_000
FEW: Final = 200
FEW_BYTES: Final = 1_000_000


class ReadAheadBudget:
    """What all partitions of a bridge hold together."""

    def __init__(self) -> None:
        self.records = self.bytes = 0

    @property
    def spent(self) -> bool:
        """Whether each may hold only what it may hold in any case."""
        return self.records >= ALL or self.bytes >= ALL_BYTES


class ReadAhead:
    """What one partition holds, by the time at which it is due (seconds since the epoch)."""

    def __init__(self, budget: ReadAheadBudget) -> None:
        self._budget = budget
        self._waiting: list[tuple[float, int]] = []
        self._far: list[tuple[float, int]] = []
        self._stopped: float | None = None
        self.records = self.bytes = 0

    def take_in(self, offset: int, due: float, size: int, now: float) -> bool:
        """Hold a record; return whether it is held: if not, nothing is to be read from it on until `may_read`."""
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

    def ripe(self, now: float) -> list[int]:
        """The offsets that have become due since this was last asked, the earliest first."""
        found = []
        while self._waiting and self._waiting[0][0] <= now:
            found.append(heappop(self._waiting)[1])
        return found

    def gone(self, size: int) -> None:
        """A record is held no longer."""
        self._count(-1, -size)

    def forget(self) -> None:
        """Nothing of it is held any longer."""
        self._budget.records -= self.records
        self._budget.bytes -= self.bytes
        self.records = self.bytes = 0

    @property
    def next(self) -> float | None:
        """When the next of those that are not due is."""
        return self._waiting[0][0] if self._waiting else None

    def may_read(self, now: float) -> bool:
        """Whether reading goes on."""
        if self._stopped is None:
            return True
        if now < self._stopped or self._full or (self._over_half and not self._stopped):
            return False
        self._stopped = None
        return True

    @property
    def full(self) -> bool:
        """Whether reading has stopped because enough is held, and not because nothing more is due."""
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
    """What may travel together: the deliveries of one handler and one partition of its source."""

    handler: str
    topic: str
    topic_id: str
    partition: int

    @property
    def account(self) -> Account:
        """Where the fates of the origins are."""
        return Account(*self)


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record that is in memory."""

    offset: int
    parked: RetryRecord
    size: int

    @property
    def delivery(self) -> Delivery:
        """What is to run again."""
        return self.parked.delivery

    @property
    def origin(self) -> int:
        """The offset at which its message first lay."""
        return self.parked.delivery.message.offset

    @property
    def whose(self) -> BatchOwner:
        """With what it may travel."""
        message = self.delivery.message
        return BatchOwner(self.delivery.handler, message.topic, self.parked.topic_id, message.partition)


#: Deliveries of a group where nobody says how many.
SINGLE_DELIVERY: Final = Portion(1, 1)


class DueQueue:
    """What is due and not handed out, as it became due; it is held by the partition."""

    def __init__(self) -> None:
        self._of: dict[BatchOwner, dict[int, HeldRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, held: HeldRecord) -> None:
        """One is due."""
        self._of.setdefault(held.whose, {})[held.offset] = held

    @property
    def counts(self) -> dict[str, int]:
        """How many of each handler."""
        found: dict[str, int] = {}
        for whose, some in self._of.items():
            found[whose.handler] = found.get(whose.handler, 0) + len(some)
        return found

    @property
    def since(self) -> float | None:
        """When (Unix time) the first of them was due; `None`: nothing is."""
        due = min((held.parked.due for some in self._of.values() for held in some.values()), default=None)
        return None if due is None else due / 1000

    def take(self, portions: Portions) -> list[tuple[DeliveryGroup, list[HeldRecord]]]:
        """What may go out now; another handler's, or partition's, is first the next time."""
        taken = [
            each for whose in list(self._of) for each in self._take(whose, portions.get(whose.handler, SINGLE_DELIVERY))
        ]
        whoses = list(self._of)
        self._of = {whose: self._of[whose] for whose in [*whoses[1:], *whoses[:1]]}
        return taken

    def _take(self, whose: BatchOwner, portion: Portion) -> Iterator[tuple[DeliveryGroup, list[HeldRecord]]]:
        while whose in self._of and not portion.spent and (some := self._next(whose, portion.size)):
            portion.spend()
            for held in some:
                self._drop(held)
            some.sort(key=lambda held: held.offset)
            yield DeliveryGroup(whose.handler, [held.offset for held in some], portion.why), some

    def _next(self, whose: BatchOwner, most: int) -> list[HeldRecord]:
        """The next to travel together: as many as are asked for, and with each what was parked behind it."""
        found: dict[int, HeldRecord] = {}
        size = 0
        for held in self._of[whose].values():
            size += held.size
            behind = held.delivery.after is not None and held.delivery.after in found
            if found and (size > MESSAGE_BYTES or (len(found) >= most and not behind)):
                break
            found[held.origin] = held
        return list(found.values())

    def give_back(self, some: Sequence[HeldRecord]) -> None:
        """These, of one group, were taken and not handed out: they are first again."""
        if some:
            whose = some[0].whose
            self._of[whose] = {**{held.offset: held for held in some}, **self._of.get(whose, {})}

    def leave_few(self, handler: str, stay: int) -> tuple[int, list[HeldRecord]]:
        """Let go of a handler's but for so many, or fewer large ones; return how many stay, and what went."""
        gone: list[HeldRecord] = []
        kept = size = 0
        most = KEPT_BYTES * max(1, stay // KEPT)
        for held in [held for whose, some in self._of.items() if whose.handler == handler for held in some.values()]:
            size += held.size
            if kept < stay and (not kept or size <= most):
                kept += 1
            else:
                self._drop(held)
                gone.append(held)
        return kept, gone

    def _drop(self, held: HeldRecord) -> None:
        del self._of[held.whose][held.offset]
        if not self._of[held.whose]:
            del self._of[held.whose]
