"""The read-ahead of a retry partition: how many parked records are in memory before they are due (pure).

Parked records stay in Kafka. Only those that are due within seconds are in memory, so that a burst starts in time, and
a few later ones, so that a record with a wrong clock keeps no other waiting.
"""

from bisect import insort
from heapq import heappop, heappush
from typing import Final

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
    def idle(self) -> bool:
        """Return whether no record is held, and reading has not stopped."""
        return not (self._waiting or self.records) and self._stopped is None

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
