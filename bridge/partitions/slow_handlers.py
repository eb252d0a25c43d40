"""Handlers of which little goes out, or nothing: theirs must not fill a partition, for others have some there.

Their worker is away or slow, or what they need is down. Some of each stay in memory, so that what goes out of it goes
on going out; the rest is passed over, stays open, and is read again then (pure).
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

#: Seconds in which is looked how much of a handler goes out that is due.
STILL: Final = 5.0
#: Seconds for which what stays in memory of a handler lasts: the rest is passed over.
LASTS: Final = 10.0
#: Records of a handler that stay in memory at the least, and their bytes.
KEPT: Final = 50
KEPT_BYTES: Final = 250_000
#: Records that are passed over at most: they are read twice, and hold back the commit.
PASSED: Final = 100_000
#: Seconds at most until records of a slow handler are passed over again, where there were none of others behind them.
AGAIN_AT_MOST: Final = 300.0


class SlowHandlers:
    """Of one partition, which handlers stand still or nearly so, and from where on theirs is to be read again."""

    def __init__(self) -> None:
        #: Since when something of each has been due, lately, and how many went out since.
        self._since: dict[str, float] = {}
        self._out: dict[str, float] = {}
        self._kept: dict[str, int] = {}
        self._first: int | None = None
        self._count = 0
        self._others = False
        self._again_after = STILL
        self._again_at = 0.0

    def see(self, ready: Mapping[str, int], now: float) -> None:
        """So many are due of each of these handlers."""
        for handler in ready:
            since = self._since.setdefault(handler, now)
            if now - since >= 2 * STILL:
                # What was long ago says little.
                self._out[handler] = self._out.get(handler, 0) * STILL / (now - since)
                self._since[handler] = now - STILL
        for handler in self._since.keys() - ready.keys():
            del self._since[handler]
            self._out.pop(handler, None)

    def went(self, handler: str, count: int) -> None:
        """So many of a handler went out."""
        self._out[handler] = self._out.get(handler, 0) + count

    def slow(self, ready: Mapping[str, int], now: float) -> Iterator[tuple[str, int]]:
        """Those that have far more in memory than goes out, while more may be passed over; and how many are to stay."""
        for handler, count in ready.items():
            since = self._since.get(handler, now)
            if self._count >= PASSED or now - since < STILL:
                continue
            rate = self._out.get(handler, 0) / (now - since)
            stay = max(KEPT, ceil(rate * LASTS))
            # What goes out is read again each time: where nobody else has any behind it, seldom.
            if count > stay and (not rate or now >= self._again_at):
                yield handler, stay

    def keeps(self, handler: str, count: int) -> None:
        """So many of a handler stay in memory, and of those to come none."""
        self._kept[handler] = count

    def passes(self, handler: str) -> bool:
        """Whether more of a handler is passed over."""
        return handler in self._kept and self._count < PASSED

    def over(self, offset: int) -> None:
        """One is passed over."""
        self._first = offset if self._first is None else min(self._first, offset)
        self._count += 1

    def holds(self, handler: str) -> None:
        """One of a handler was read that is held."""
        self._others |= bool(self._kept) and handler not in self._kept

    def back(self, counts: Mapping[str, int], now: float) -> int | None:
        """From where on to read again, as a handler goes on; `None`: not now.

        Parameters:
            counts: of each handler, what is due and in memory.
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
