"""The growing pauses of a message whose task no worker knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Seconds between two looks at such a message: half as long as it has waited so far, within these. Whoever looks may
#: again be one that does not know it, so there must be many looks before the first minute is over.
SHORTEST, LONGEST = 1.0, 30.0
#: The longest such pause of a message that may wait without end: it goes back at once when its worker stops.
LONGEST_WITHOUT_END = 600.0
#: Seconds after which a message that no worker took is an old one: other workers are not let go first for it.
OLD_AFTER = 60.0
#: Seconds between two log lines about messages of one name.
SAY_EVERY = 60.0
#: Header: milliseconds since the epoch at which a worker first did not know the message's task.
UNKNOWN_SINCE = "unknown_since"
#: Names that are remembered at most; what comes beyond them shares a place.
MOST_NAMES = 1_000
#: Messages that are remembered at most; what comes beyond them waits as long as its name has been seen.
MOST_MESSAGES = 10_000


def read_unknown_since(headers: Mapping[str, object], now: float) -> float:
    """Return since when (Unix time) no worker has known the task of a message; an unreadable header counts as now."""
    since = headers.get(UNKNOWN_SINCE)
    return min(now, since / 1000) if isinstance(since, int | float) and since > 0 else now


def find_unknown_pause(waited: float, left: float = float("inf"), longest: float = LONGEST) -> float:
    """Return the seconds until a message that has waited so long is tried again; it may wait for `left` more."""
    return min(max(waited / 2, SHORTEST), longest, max(left, 0.1))


@dataclass(slots=True)
class _UnknownName:
    since: float
    said_at: float = float("-inf")
    unsaid: int = 0


@dataclass(slots=True)
class UnknownMessages:
    """The unknown messages that this worker has seen, and when it last logged each name."""

    _names: dict[object, _UnknownName] = field(default_factory=dict)
    #: Of each message, when it was seen first and last, the one seen longest ago in front.
    _messages: dict[object, tuple[float, float]] = field(default_factory=dict)

    def pause(self, name: object, message: object, now: float) -> float:
        """Seconds until the next look at a message: the longer it has been seen, the more. One that is new is looked
        at again soon, whatever came before it; ``message`` tells it from others.
        """
        of_name = self._of(name, now).since
        self._forget(now)
        if message not in self._messages and len(self._messages) >= MOST_MESSAGES:
            return find_unknown_pause(now - of_name)
        since, _ = self._messages.pop(message, (now, now))
        self._messages[message] = since, now
        return find_unknown_pause(now - since)

    def _forget(self, now: float) -> None:
        while self._messages:
            first = next(iter(self._messages))
            if now - self._messages[first][1] <= 2 * LONGEST:
                break
            del self._messages[first]

    def to_say(self, name: object, now: float) -> int:
        """Return how many messages of a name came since its last log line; 0 if it is too soon for another line."""
        seen = self._of(name, now)
        seen.unsaid += 1
        if now - seen.said_at < SAY_EVERY:
            return 0
        count, seen.unsaid, seen.said_at = seen.unsaid, 0, now
        return count

    def _of(self, name: object, now: float) -> _UnknownName:
        key = name if name in self._names or len(self._names) < MOST_NAMES else None
        return self._names.setdefault(key, _UnknownName(now))
