"""Holders whose channel is closed: what their tasks work on still is kept until these have ended."""

from __future__ import annotations

from time import monotonic

from lossless.transport.holding import Holder
from lossless.transport.working import running_tags, stopping

#: Seconds for which a message is kept that no task seems to work on: one is about to begin, or has just ended.
PATIENCE = 1.0


class Orphans:
    """The holders of one process whose channels are closed."""

    def __init__(self) -> None:
        self._holders: set[Holder] = set()
        #: Since when nobody works on a message, by its tag.
        self._idle: dict[str, float] = {}

    def __contains__(self, holder: Holder) -> bool:
        return holder in self._holders

    def add(self, holder: Holder) -> None:
        """Keep a holder whose channel is closed."""
        self._holders.add(holder)

    def discard(self, holder: Holder) -> None:
        """Keep a holder no longer."""
        self._holders.discard(holder)
        self._idle = {tag: at for tag, at in self._idle.items() if not tag.startswith(holder.owner)}

    def tend(self, holder: Holder) -> bool:
        """Give back what no task works on any more. Returns whether the holder has ended.

        Raises redis-py's errors; nothing is forgotten then.
        """
        running = set() if stopping() else running_tags()
        now = monotonic()
        for tag in holder.tags:
            if tag in running:
                self._idle.pop(tag, None)
            elif now - self._idle.setdefault(tag, now) > PATIENCE:
                holder.give_back(tag, front=True)  # its task was cancelled: nobody will settle it
        return holder.leave()
