"""The buffer of messages that one channel has taken and not delivered yet; undeliverable ones go back or aside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from time import monotonic, time
from typing import Any, Protocol

from kombu.asynchronous import get_event_loop
from kombu.log import get_logger

from lossless.transport import message_ownership
from lossless.transport.celery_worker_state import runs_in_this_process, stopping
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.message_ownership import TAKEN_AT
from lossless.transport.queue_backoff import QueueBackoff
from lossless.transport.script_hook import LOOKED
from lossless.transport.storage_layout import TransportKeys, decode_message, read_eta

logger = get_logger("lossless.transport")


class DeliveringChannel(Protocol):
    """The part of the channel that the buffer uses."""

    keys: TransportKeys
    holder: MessageHolder | None
    no_ack_queues: set[str]
    wait_from: float
    on_unreadable: Callable[[str, bytes, str, Exception], None] | None

    @property
    def active_queues(self) -> Collection[str]:
        """The queues that are consumed from."""

    def check_body(self, message: dict[str, Any]) -> None:
        """Raise unless a message's body can be decoded."""

    def hand_over(self, message: dict[str, Any], queue: str) -> None:
        """Deliver a message to the queue's consumers."""

    def settle_now(self) -> None:
        """Send pending settlements at once."""

    def put_back(self, queue: str, message: dict[str, Any]) -> None:
        """Put a message that has no owner back into its list."""


class ArrivalBuffer:
    """The messages that one channel has taken and not delivered yet.

    Parameters:
        channel: the channel.
        backoff: the queues that the worker leaves to others; updated here.
    """

    def __init__(self, channel: DeliveringChannel, backoff: QueueBackoff) -> None:
        self.channel = channel
        self._backoff = backoff
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        #: Whether this worker does not know the task of the message being delivered; None: nor do others, for long.
        self._is_unknown: bool | None = False
        self._changed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def come(
        self, queue: str, key: str, raw: bytes, number: int, now: float, looked: tuple[float, str] | None = None
    ) -> None:
        """Note a message that was taken, and let it wait in Redis where it is not due.

        Parameters:
            queue: its queue.
            key: the list that it lay in.
            raw: its bytes.
            number: its field in the owner's hash.
            now: the server's time.
            looked: when the script hook read it, and what it found; None: there is no hook.
        """
        holder = None if queue in self.channel.no_ack_queues else self.channel.holder
        tag = holder.add(number, queue, key, raw) if holder is not None else None
        try:
            message = decode_message(raw)
            properties = message["properties"]
            properties["delivery_info"]["routing_key"]
            properties["delivery_tag"] = tag or properties["delivery_tag"]
            properties.pop(LOOKED, None)  # a sender's claim does not count
            properties[TAKEN_AT] = message_ownership.read_host_clock()
            if tag is not None and looked is not None:
                properties[LOOKED] = looked
            due = read_eta(message)
            self.channel.check_body(message)
        except Exception as exc:
            self._unreadable(tag, raw, queue, exc)
            return
        if due is not None and due - now > self.channel.wait_from and holder is not None and tag is not None:
            holder.wait(tag, due)
        else:
            if due is not None and due <= now and due > time():
                # Redis says that it is due. A worker whose clock is behind would hold it until its own says so.
                message["headers"]["eta"] = None
            self._waiting.append((queue, message))

    def _unreadable(self, tag: str | None, raw: bytes, queue: str, exc: Exception) -> None:
        """Have the consumer replace an entry that is no message, else set it aside."""
        if tag is None or self.channel.holder is None:
            logger.error("Took an entry of queue %r that is no message (%r), without acknowledgement", queue, exc)
            return
        if self.channel.on_unreadable is not None:
            try:
                self.channel.on_unreadable(tag, raw, queue, exc)
                self._update_backoff(queue)
                return
            except Exception:
                logger.exception("An entry of queue %r that is no message could not be replaced", queue)
        key = self.channel.keys.undecodable
        logger.error("Took an entry of queue %r that is no message (%r): moved to the list %r", queue, exc, key)
        self.channel.holder.set_aside(tag)

    def next(self) -> dict[str, Any]:
        """Return the first message, and remove it."""
        return self._waiting.popleft()[1]

    def deliver(self) -> bool:
        """Deliver the messages to the consumers, and return whether there were any; if a consumer raises, the rest is
        kept for the next turn. A worker that is stopping delivers nothing more: the rest is put back as it closes.
        """
        delivered = False
        while self._waiting:
            queue, message = self._waiting[0]
            if stopping() and queue not in self.channel.no_ack_queues:
                break
            if queue in self.channel.active_queues:
                delivered = True
                self._waiting.popleft()
                self._is_unknown = False
                self.channel.hand_over(message, queue)
                if runs_in_this_process():  # it has ended, and the next one may take long, or kill the worker
                    self.channel.settle_now()
                self._update_backoff(queue)
            else:  # cancelled meanwhile
                self._return_cancelled()
        return delivered

    # -- messages of unknown tasks

    def note_unknown(self, for_long: bool = False) -> None:
        """Note that this worker does not know the task of the message being delivered."""
        self._is_unknown = None if for_long else True

    def take_backoff_change(self) -> bool:
        """Return whether the backoff of a queue has begun or ended since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def _update_backoff(self, queue: str) -> None:
        """Back off from a queue for a moment if this worker knows none of the tasks that it takes there."""
        unknown, self._is_unknown = self._is_unknown, False
        now = monotonic()
        before = self._backoff.limit(queue, now)
        pause = 0.0 if unknown is None else self._backoff.note(queue, unknown, now)
        if self._backoff.limit(queue, now) != before or (unknown is not False and before > 0):
            self._changed = True  # it is idle there no longer, or again
        if pause and (hub := get_event_loop()) is not None:
            hub.call_later(pause, lambda: None)  # the loop sleeps for longer

    # -- putting back

    def _return_cancelled(self) -> None:
        """Put back the messages of cancelled queues, the oldest last: it is next to run then."""
        active, kept = self.channel.active_queues, deque[tuple[str, dict[str, Any]]]()
        while self._waiting:
            queue, message = self._waiting.pop()
            if queue in active:
                kept.appendleft((queue, message))
            else:
                self._return(queue, message)
        self._waiting = kept

    def _return(self, queue: str, message: dict[str, Any]) -> None:
        """Put back an undelivered message, also one that was taken without acknowledgement."""
        if queue in self.channel.no_ack_queues:
            self.channel.put_back(queue, message)
        elif self.channel.holder is not None:
            self.channel.holder.give_back(message["properties"]["delivery_tag"], front=True)

    def return_all(self) -> None:
        """Put all messages back, the oldest next to run."""
        while self._waiting:
            self._return(*self._waiting.pop())
