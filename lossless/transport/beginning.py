"""What a worker has begun with, for those who find it dead: of what it held, that alone may have killed it (pure).

Redis is told at once where nothing was told a moment ago, and else a moment later, for all that has begun until then:
a message costs no trip of its own. What is told may be over already. That is seen from what is held, so an end needs
no telling.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic

#: Seconds between two times that Redis is told.
PAUSE = 0.05


class Begun:
    """The fields of what has begun, of one owner."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._fields: set[str] = set()
        self._lock = threading.Lock()
        self._is_news = False
        self._told_at = -PAUSE

    def add(self, field: str) -> bool:
        """Note that a task has begun with a message; return whether Redis should be told at once."""
        with self._lock:
            self._fields.add(field)
            was, self._is_news = self._is_news, True
            return not was and self._now() - self._told_at >= PAUSE

    def to_tell(self, held: Iterable[str]) -> str | None:
        """Return what Redis is to be told now, None if it knows all, or has been told a moment ago.

        Parameters:
            held: the fields of what is held still; the others are forgotten.
        """
        with self._lock:
            if not self._is_news or self._now() - self._told_at < PAUSE:
                return None
            self._fields.intersection_update(held)
            self._is_news, self._told_at = False, self._now()
            return ",".join(sorted(self._fields, key=int))

    def untold(self) -> None:
        """Be told that Redis did not hear it."""
        self._is_news = True
