"""Messages of tasks that this worker does not know: they go back, with growing pauses."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from celery.utils.log import get_logger

from lossless.worker.message_burial import Successor, make_comeback
from lossless.worker.message_replacement import MessageReplacement
from lossless.worker.unknown_task_backoff import (
    LONGEST_WITHOUT_END,
    OLD_AFTER,
    UNKNOWN_SINCE,
    UnknownMessages,
    find_unknown_pause,
    read_unknown_since,
)

logger = get_logger(__name__)


class TimedConsumer(Protocol):
    """The part of the consumer that unknown tasks use."""

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
            since: since when (Unix time) it waits.
            now: the time, by the same clock.
            left: seconds for which it may wait still.
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
        # It is due by the broker's clock too, however wrong this host's is.
        due_in = pause + now - time.time()
        self.come_back(message, make_comeback(message, due_in, why, **{UNKNOWN_SINCE: int(since * 1000)}), pause)

    def leave(
        self, channel: Any, delivery_tag: str, name: object, what: str, which: object, message: Any = None
    ) -> None:
        """Put a message of another application back into its queue, with growing pauses.

        On this transport a header says since when it waits, whichever worker looks at it; all else stays as it is.

        Parameters:
            channel: the channel that took it.
            delivery_tag: its tag there.
            name: its task's, for the log.
            what: what it is, for the log.
            which: what tells it from others.
            message: the message, where it is one.
        """
        now = time.time()
        if count := self._seen.to_say(name, now):
            logger.error(
                "%d time(s) came what is not this application's, and went back to its queue: %s. If another "
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
