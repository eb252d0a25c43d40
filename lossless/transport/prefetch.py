"""The prefetch limit, and what a settled message means for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.transport import redis as _kombu_redis
from kombu.transport import virtual as _virtual

from lossless.transport.holding import Holder
from lossless.transport.working import started_tags, stopping

kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs
virtual: Any = _virtual


class QoS(kombu_redis.QoS):  # type: ignore[misc]
    """The prefetch limit. Settling frees a slot at once: it never hangs on Redis's answer."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a delivered message. It is its owner's already: nothing is written."""
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge. Repeated until Redis has answered."""
        self._settled(delivery_tag, lambda holder: holder.ack(delivery_tag))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject, and put back behind all others with ``requeue``. Repeated until Redis has answered."""
        if requeue and self.channel.broadcasts.holds(delivery_tag):
            self.channel.broadcasts.requeue(delivery_tag)
        elif requeue:
            self._settled(delivery_tag, lambda holder: holder.give_back(delivery_tag, front=False))
        else:
            self.ack(delivery_tag)

    def _settled(self, delivery_tag: str, settle: Callable[[Holder], None]) -> None:
        try:
            if self.channel.holder is not None:
                settle(self.channel.holder)
                self.channel.settle_soon()
        finally:
            if delivery_tag in self._delivered:  # an entry that is no message was never delivered
                virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Give back what was delivered and not settled, when the channel is closed.

        What tasks are working on stays held where the worker goes on: Celery, which closes its channels
        after an error, lets those tasks run to their end and forgets the others
        (celery/worker/consumer/consumer.py ``on_close``).
        """
        self.give_back_all_but(set() if stopping() else started_tags())
        self._delivered.clear()

    def give_back_all_but(self, kept: set[str]) -> None:
        """Give back what is delivered and not settled, except the tags ``kept``; oldest next to run."""
        holder = self.channel.holder
        self._flush()
        for tag in reversed(tuple(self._delivered)):
            if holder is not None and tag not in kept:
                holder.give_back(tag, front=True)
                virtual.QoS.ack(self, tag)
