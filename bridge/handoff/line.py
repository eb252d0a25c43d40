"""The messages that this bridge put into a queue: whose they are, while they wait and until they end."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.ledger import Account
from bridge.ledger.fates import UNSETTLED

#: Seconds after which a message counts as taken where others put theirs into the queue: its place is not known then.
PLACE_KNOWN_FOR: Final = 60.0
#: Seconds, and runs, after which a message no longer counts as one that has not ended: it was purged, or waits for its
#: retry.
COUNTS_FOR: Final = 10.0
COUNTS_FOR_RUNS: Final = 3


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


class Unended:
    """The messages of one handler that this bridge handed off and that have not ended: a worker takes some ahead."""

    def __init__(self) -> None:
        #: For each message the last offset that it carries, and when it was handed off.
        self._messages: dict[Account, dict[int, float]] = {}

    def add(self, account: Account, last: int, now: float) -> None:
        """A message was handed off.

        Parameters:
            last: the last offset that it carries: a message runs its deliveries in order.
        """
        self._messages.setdefault(account, {})[last] = now

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(map(len, self._messages.values()))

    def questions(self) -> Iterator[tuple[Account, Sequence[int]]]:
        """Yield the offsets whose fates say which messages have ended."""
        for account, messages in self._messages.items():
            yield account, sorted(messages)

    def see(self, account: Account, offsets: Sequence[int], fates: bytes) -> None:
        """Take in the fates of offsets that were asked for."""
        for offset, fate in zip(offsets, fates, strict=True):
            if fate not in UNSETTLED:
                self._messages[account].pop(offset, None)

    def forget(self, now: float, takes: float | None) -> None:
        """Forget the messages that should have ended long ago.

        Parameters:
            takes: seconds that a message takes, `None` if it is not known.
        """
        last = now - (COUNTS_FOR + COUNTS_FOR_RUNS * takes if takes is not None else PLACE_KNOWN_FOR)
        kept = {
            account: {offset: since for offset, since in messages.items() if since > last}
            for account, messages in self._messages.items()
        }
        self._messages = {account: messages for account, messages in kept.items() if messages}
