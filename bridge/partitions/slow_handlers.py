"""The slow handlers of a retry partition, whose records must not keep those of others out of memory (pure).

Their worker is down or slow, or a dependency is down. Some records of each stay in memory, so that it goes on with
them. The rest is passed over, stays open, and is read again later.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

#: Seconds over which the hand-offs of a handler are measured.
STILL: Final = 5.0
#: Seconds of hand-offs that stay in memory of a slow handler: the rest is passed over.
LASTS: Final = 10.0
#: Fewest records of a handler that stay in memory, and their bytes.
KEPT: Final = 50
KEPT_BYTES: Final = 250_000
#: Most records that are passed over: they are read twice, and hold back the commit.
PASSED: Final = 100_000
#: Most seconds until records of a slow handler are passed over again, if none of others were behind them.
AGAIN_AT_MOST: Final = 300.0


class SlowHandlers:
    """The slow handlers of one partition, and the offset from which on their records are read again."""

    def __init__(self) -> None:
        #: By handler: since when deliveries have been due, lately, and how many went out since.
        self._since: dict[str, float] = {}
        self._out: dict[str, float] = {}
        self._kept: dict[str, int] = {}
        self._first: int | None = None
        self._count = 0
        self._others = False
        self._again_after = STILL
        self._again_at = 0.0

    @property
    def idle(self) -> bool:
        """Return whether no handler has anything due, kept in memory or passed over."""
        return not (self._since or self._kept or self._count)

    def note_due(self, ready: Mapping[str, int], now: float) -> None:
        """Note how many deliveries of each handler are due."""
        for handler in ready:
            since = self._since.setdefault(handler, now)
            if now - since >= 2 * STILL:
                # Old hand-offs count for less.
                self._out[handler] = self._out.get(handler, 0) * STILL / (now - since)
                self._since[handler] = now - STILL
        for handler in self._since.keys() - ready.keys():
            del self._since[handler]
            self._out.pop(handler, None)

    def note_handed(self, handler: str, count: int) -> None:
        """Note that deliveries of a handler went out."""
        self._out[handler] = self._out.get(handler, 0) + count

    def find_slow(self, ready: Mapping[str, int], now: float) -> Iterator[tuple[str, int]]:
        """Yield handlers that have far more in memory than goes out, and how many of their records are to stay."""
        for handler, count in ready.items():
            since = self._since.get(handler, now)
            if self._count >= PASSED or now - since < STILL:
                continue
            rate = self._out.get(handler, 0) / (now - since)
            stay = max(KEPT, ceil(rate * LASTS))
            # Its records are read again each time it goes on: seldom, if no other handler has any behind them.
            if count > stay and (not rate or now >= self._again_at):
                yield handler, stay

    def keep(self, handler: str, count: int) -> None:
        """Keep so many records of a handler in memory, and pass over those to come."""
        self._kept[handler] = count

    def passes_over(self, handler: str) -> bool:
        """Return whether further records of a handler are passed over."""
        return handler in self._kept and self._count < PASSED

    def pass_over(self, offset: int) -> None:
        """Count a record as passed over."""
        self._first = offset if self._first is None else min(self._first, offset)
        self._count += 1

    def note_held(self, handler: str) -> None:
        """Note that a record of a handler was read and held."""
        self._others |= bool(self._kept) and handler not in self._kept

    def take_reread_offset(self, counts: Mapping[str, int], now: float) -> int | None:
        """Return the offset from which to read again because a handler goes on; `None`: not now.

        Parameters:
            counts: by handler, records that are due and in memory.
        """
        moved = [handler for handler, kept in self._kept.items() if counts.get(handler, 0) <= kept // 2]
        if not moved:
            return None
        for handler in moved:
            del self._kept[handler]
        self._again_after = STILL if self._others else min(AGAIN_AT_MOST, 2 * self._again_after)
        self._again_at, self._others = now + self._again_after, False
        first, self._first, self._count = self._first, None, 0
        return first
