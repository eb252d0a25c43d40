"""Handlers of which nothing goes out, though it is due: theirs must not fill a partition, for others have some there.

Their worker is away, or what they need is down. A few of each stay in memory, so that it is seen when they go on; the
rest is passed over, stays open, and is read again then (pure).
"""

from collections.abc import Collection, Iterator
from typing import Final

#: Seconds for which nothing of a handler has gone out that is due.
STILL: Final = 5.0
#: Records of such a handler that stay in memory, and their bytes.
KEPT: Final = 50
KEPT_BYTES: Final = 250_000
#: Records that are passed over at most: they are read twice, and hold back the commit.
PASSED: Final = 100_000


class Passing:
    """Of one partition, which handlers stand still, and from where on theirs is to be read again."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._kept: dict[str, int] = {}
        self._first: int | None = None
        self._count = 0

    def see(self, ready: Collection[str], now: float) -> None:
        """Of these handlers something is due."""
        self._since = {handler: self._since.get(handler, now) for handler in ready}

    def went(self, handler: str, now: float) -> None:
        """Something of a handler went out."""
        if handler in self._since:
            self._since[handler] = now

    def still(self, now: float) -> Iterator[str]:
        """Those of which nothing goes out, while more may be passed over."""
        if self._count < PASSED:
            yield from (handler for handler, since in self._since.items() if now - since >= STILL)

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

    def back(self, counts: dict[str, int]) -> int | None:
        """From where on to read again, as a handler goes on; `None`: not now.

        Parameters:
            counts: of each handler, what is due and in memory.
        """
        moved = [handler for handler, kept in self._kept.items() if counts.get(handler, 0) <= kept // 2]
        if not moved:
            return None
        for handler in moved:
            del self._kept[handler]
        first, self._first, self._count = self._first, None, 0
        return first
