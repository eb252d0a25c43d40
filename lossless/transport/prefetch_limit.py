"""The prefetch limit, and how a settled message frees its slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kombu.transport import redis as _kombu_redis
from kombu.transport import virtual as _virtual

from lossless.transport.broadcast import Broadcasts
from lossless.transport.celery_worker_state import started_tags, stopping
from lossless.transport.inflight_messages import MessageHolder

kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs
virtual: Any = _virtual


class SettlingChannel(Protocol):
    """The part of the channel that the prefetch limit uses."""

    holder: MessageHolder | None
    broadcasts: Broadcasts

    def settle_soon(self) -> None:
        """Have the holder's pending settlements sent."""


class QoS(kombu_redis.QoS):  # type: ignore[misc]
    """The prefetch limit. Settling frees a slot at once: it never hangs on Redis's answer."""

    channel: SettlingChannel

    # -- the credit

    @property
    def at_work(self) -> bool:
        """Return whether a delivered message is not settled."""
        return len(self._delivered) > len(self._dirty)

    def delivers(self, delivery_tag: str) -> bool:
        """Return whether a message was delivered and is not settled."""
        return delivery_tag in self._delivered and delivery_tag not in self._dirty

    def credit(self, limit: int, arrived: int) -> int:
        """Return how many more messages may be taken.

        Parameters:
            limit: at most so many.
            arrived: how many are taken and not delivered yet.
        """
        if not self.can_consume():
            return 0
        if "can_consume" in vars(self):  # Celery's worker_disable_prefetch: its limit is not known, so one by one
            return 0 if arrived else 1
        credit = self.can_consume_max_estimate()
        return max(0, (limit if credit is None else min(credit, limit)) - arrived)

    # -- delivered messages

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a delivered message. It is its owner's already: nothing is written."""
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge. Repeated until Redis has answered."""
        self.settle(delivery_tag, lambda holder: holder.ack(delivery_tag))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject, and put back behind all others with ``requeue``. Repeated until Redis has answered."""
        if requeue and self.channel.broadcasts.holds(delivery_tag):
            self.channel.broadcasts.requeue(delivery_tag)
        elif requeue:
            self.settle(delivery_tag, lambda holder: holder.give_back(delivery_tag, front=False))
        else:
            self.ack(delivery_tag)

    def settle(self, delivery_tag: str, settle: Callable[[MessageHolder], None]) -> None:
        """Settle a message through its holder, and free its slot even if that fails."""
        try:
            if self.channel.holder is not None:
                settle(self.channel.holder)
                self.channel.settle_soon()
        finally:
            if delivery_tag in self._delivered:  # an entry that is no message was never delivered
                self.free(delivery_tag)

    def free(self, delivery_tag: str) -> None:
        """Free the slot of a settled message."""
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Give back delivered and unsettled messages when the channel is closed.

        What tasks are working on stays held where the worker goes on: Celery, which closes its channels
        after an error, lets those tasks run to their end and forgets the others
        (celery/worker/consumer/consumer.py ``on_close``).
        """
        if stopping():
            self._give_back_all_but(set())
        else:
            self.give_back_unstarted()
        self._delivered.clear()

    def give_back_unstarted(self) -> None:
        """Give back the delivered messages that no process or thread has been given."""
        holder = self.channel.holder
        self._give_back_all_but(started_tags() | (set() if holder is None else holder.begun_tags()))

    def _give_back_all_but(self, kept: set[str]) -> None:
        """Give back delivered and unsettled messages, except the tags ``kept``; oldest next to run."""
        holder = self.channel.holder
        self._flush()
        for tag in reversed(tuple(self._delivered)):
            if holder is not None and tag not in kept:
                holder.give_back(tag, front=True)
                self.free(tag)
