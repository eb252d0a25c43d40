"""Whose messages wait in a queue, as far as this bridge put them there."""

from collections import deque
from dataclasses import dataclass
from typing import Final

#: Seconds after which a message counts as taken where others put theirs into the queue: its place is not known then.
PLACE_KNOWN_FOR: Final = 60.0


@dataclass(slots=True)
class _Some:
    #: `None`: they were there before, and are anybody's.
    handler: str | None
    messages: int
    since: float


class Line:
    """What waits in one queue, the oldest first: what is taken from a queue is its oldest."""

    def __init__(self) -> None:
        self._some: deque[_Some] = deque()
        self._seen = False
        #: Messages that wait, also those of others.
        self.length = 0

    def add(self, handler: str, messages: int, now: float) -> None:
        """This bridge put so many there."""
        self.length += messages
        self._some.append(_Some(handler, messages, now))

    def see(self, length: int, now: float) -> None:
        """So many are there now; what was taken of ours is what is oldest."""
        if not self._seen:
            self._seen = True
            self._some.appendleft(_Some(None, max(0, length - self._known()), now))
        self.length = length
        over = self._known() - length
        while self._some and (over > 0 or (over < 0 and now - self._some[0].since > PLACE_KNOWN_FOR)):
            first = self._some[0]
            gone = min(first.messages, over) if over > 0 else first.messages
            first.messages -= gone
            over -= gone
            if not first.messages:
                self._some.popleft()

    def of(self, handler: str) -> int:
        """How many of them a handler has at the most."""
        return sum(some.messages for some in self._some if some.handler in (None, handler))

    def _known(self) -> int:
        return sum(some.messages for some in self._some)
