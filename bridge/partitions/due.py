"""How far ahead a partition of a retry topic is read, and what of it is due (pure).

What is parked stays in Kafka: only what is due within seconds is in memory, so that a burst is there when its time
comes. A few records that are due later are held too: one whose producer's clock is wrong keeps nothing else waiting.
"""

from bisect import insort
from heapq import heappop, heappush
from typing import Final

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


class Budget:
    """What all partitions of a bridge hold together."""

    def __init__(self) -> None:
        self.records = self.bytes = 0

    @property
    def spent(self) -> bool:
        """Whether each may hold only what it may hold in any case."""
        return self.records >= ALL or self.bytes >= ALL_BYTES


class Due:
    """What one partition holds, by the time at which it is due (seconds since the epoch)."""

    def __init__(self, budget: Budget) -> None:
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
