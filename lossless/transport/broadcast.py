"""Broadcast messages: what comes through a fanout exchange.

Redis publishes them and keeps none: each consumer has a copy of its own, in its memory alone. What shall run again is
delivered again from there, to this consumer and to no other; what is buried goes into the burial's queue, and is safe
from then on. A copy is gone with its worker, as the next one would be that comes while no worker listens.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import time
from typing import Any, Protocol

from kombu.asynchronous import get_event_loop
from kombu.log import get_logger
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from lossless.transport.holding import Holder

logger = get_logger("lossless.transport")


class Slots(Protocol):
    """What broadcasts need of the prefetch limit."""

    def delivers(self, delivery_tag: str) -> bool:
        """Whether a message was delivered and is not settled."""

    def get(self, delivery_tag: str) -> Any:
        """A message that was delivered."""

    def free(self, delivery_tag: str) -> None:
        """Free the slot of a message that is seen to."""


class Listening(Protocol):
    """What broadcasts need of the channel."""

    qos: Slots
    holder: Holder | None

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """A client for one command."""

    def put(self, queue: str, message: dict[str, Any]) -> None:
        """Put a message into a queue."""

    def listens_as(self, exchange: str) -> str | None:
        """The name of the queue for which a fanout exchange is listened to, None where it is not."""

    def hand_over(self, message: dict[str, Any], queue: str) -> None:
        """Give a message to a queue's consumers."""


class Broadcasts:
    """The broadcast messages that one channel publishes, and has delivered and that are not settled."""

    def __init__(self, channel: Listening) -> None:
        self.channel = channel
        self._heard_by: int | None = None

    def publish(self, message: dict[str, Any], topics: list[str]) -> None:
        """Publish a message. Raises redis-py's errors."""
        self._heard_by, payload = None, dumps(message)
        with self.channel.conn_or_acquire() as client:
            self._heard_by = sum(int(client.publish(topic, payload)) for topic in topics)

    def heard_by(self) -> int | None:
        """Return how many heard what was published last, once; None where it failed.

        Those that listen to a replica are not counted, and nor are those of another database.
        """
        heard_by, self._heard_by = self._heard_by, None
        return heard_by

    def holds(self, delivery_tag: str) -> bool:
        """Whether a tag is a broadcast message's that is not settled: an owner's own tags begin with its name."""
        holder = self.channel.holder
        return self.channel.qos.delivers(delivery_tag) and (
            holder is None or not delivery_tag.startswith(f"{holder.owner}.")
        )

    def replace(self, delivery_tag: str, message: dict[str, Any], queue: str | None, eta: float | None) -> None:
        """Put ``message`` into ``queue``, or without one deliver it here when it is due; then settle the other.

        Raises redis-py's errors, and has done nothing then.
        """
        if queue is None:
            self._again(message, eta)
        else:
            self.channel.put(queue, message)
        self.channel.qos.free(delivery_tag)

    def requeue(self, delivery_tag: str) -> None:
        """Deliver a message here once more."""
        message = self.channel.qos.get(delivery_tag)._raw
        message["headers"]["redelivered"] = message["properties"]["delivery_info"]["redelivered"] = True
        self._again({**message, "properties": {**message["properties"], "delivery_tag": uuid()}}, None)
        self.channel.qos.free(delivery_tag)

    def _again(self, message: dict[str, Any], eta: float | None) -> None:
        loop = get_event_loop()
        if loop is None:
            self._deliver(message)
        else:
            # Also from a pool's thread.
            loop.call_soon(loop.call_later, max(0.0, (eta or 0.0) - time()), self._deliver, message)

    def _deliver(self, message: dict[str, Any]) -> None:
        exchange = message["properties"]["delivery_info"]["exchange"]
        queue = self.channel.listens_as(exchange)
        if queue is None:
            logger.warning("A broadcast message of exchange %r is dropped: it is consumed here no more", exchange)
        else:
            self.channel.hand_over(message, queue)
