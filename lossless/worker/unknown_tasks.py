"""Messages of tasks that this worker does not know: the worker puts them back, with growing pauses."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from celery.utils.log import get_logger

from lossless.worker.message_burial import UNKNOWN_SINCE, Successor, make_comeback
from lossless.worker.message_replacement import MessageReplacement

logger = get_logger(__name__)


#: Seconds between two looks at such a message: half as long as it has waited so far, within these. Whoever looks may
#: again be one that does not know it, so there must be many looks before the first minute is over.
SHORTEST, LONGEST = 1.0, 30.0
#: The longest such pause of a message that may wait without end: it goes back at once when its worker stops.
LONGEST_WITHOUT_END = 600.0
#: Seconds after which a message that no worker took is an old one: other workers are not let go first for it.
OLD_AFTER = 60.0
#: Seconds between two log lines about messages of one name.
SAY_EVERY = 60.0
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


class TimedConsumer(Protocol):
    """The part of a worker's consumer that `UnknownTasks` uses."""

    qos: Any

    @property
    def timer(self) -> Any:
        """The timer of the worker."""


class UnknownTasks:
    """The messages of unknown tasks that one worker has taken.

    Parameters:
        consumer: the worker's consumer.
    """

    def __init__(self, consumer: TimedConsumer) -> None:
        self.consumer = consumer
        self._seen = UnknownMessages()

    def wait(self, message: Any, since: float, now: float, left: float) -> None:
        """Put a message back, to wait for a worker that knows its task.

        Parameters:
            message: the message.
            since: the Unix time since when it waits.
            now: the time, by the same clock.
            left: seconds for which it may still wait.
        """
        name, pause = message.headers["task"], find_unknown_pause(now - since, left)
        if count := self._seen.to_say(name, now):
            logger.error(
                "%d message(s) for the task %r, which this worker does not know, wait for one that does: each for %d s "
                "at most, then it is buried. The last is %s.",
                count, name, left + now - since, message.headers.get("id"),
            )  # fmt: skip
        _leave_to_others(message.channel, now - since)
        why = f"its task {name!r} is not known here, again in {pause:.1f} s"
        # `now` is the broker's clock, `time.time()` this host's: the copy is due on time even if they differ.
        due_in = pause + now - time.time()
        self.come_back(message, make_comeback(message, due_in, why, **{UNKNOWN_SINCE: int(since * 1000)}), pause)

    def leave(
        self, channel: Any, delivery_tag: str, name: object, what: str, which: object, message: Any = None
    ) -> None:
        """Put a message of another application back into its queue, with growing pauses.

        On this transport a header says since when it waits, for all workers; the rest of the message is unchanged.

        Parameters:
            channel: the channel that took it.
            delivery_tag: its tag there.
            name: the name of its task, for the log.
            what: a description of it, for the log.
            which: its identity among messages of the same name.
            message: the message, if it could be decoded.
        """
        now = time.time()
        if count := self._seen.to_say(name, now):
            logger.error(
                "unknown task: %d message(s) returned to the queue: %s. If another "
                "application uses this queue, give one of them another (task_default_queue). If nobody has that "
                "task, correct its name where it is sent, or set unknown_tasks = 'discard'.",
                count, what,
            )  # fmt: skip
        if hasattr(channel, "put_off") and message is not None and isinstance(message.headers, dict):
            now = channel.now()
            since = read_unknown_since(message.headers, now)
            pause, headers = (
                find_unknown_pause(now - since, longest=LONGEST_WITHOUT_END),
                {UNKNOWN_SINCE: int(since * 1000)},
            )
            _leave_to_others(channel, now - since)
        else:
            pause, headers = self._seen.pause(name, which, now), None
            _leave_to_others(channel, 0)
        if hasattr(channel, "put_off"):
            channel.put_off(delivery_tag, channel.now() + pause, headers)
            if message is not None:
                message._state = "REQUEUED"
        elif message is not None:
            self._after(pause, message.requeue)

    def come_back(self, message: Any, copy: Successor, pause: float) -> None:
        """Replace a message by a delayed copy; if the broker cannot delay it, hold it here until it is due."""
        replacement = MessageReplacement(message, copy)
        if hasattr(message.channel, "replace"):
            replacement.start()
        else:
            self._after(pause, replacement.start)

    def _after(self, pause: float, act: Callable[[], None]) -> None:
        """Act after a pause, and raise the prefetch limit by one until then, as Celery does for an eta."""
        self.consumer.qos.increment_eventually()

        def now() -> None:
            self.consumer.qos.decrement_eventually()
            act()

        self.consumer.timer.call_after(pause, now)


def _leave_to_others(channel: Any, waited: float) -> None:
    """Back off from a queue whose messages this worker does not know, unless the message has waited for long."""
    if hasattr(channel, "note_unknown"):
        channel.note_unknown(waited > OLD_AFTER)


def identify_message(message: Any) -> object:
    """Return what identifies a message, also after it was put back unchanged."""
    id_ = message.headers.get("id") if isinstance(message.headers, dict) else None
    return id_ if isinstance(id_, str) else hash(repr(message.body))
