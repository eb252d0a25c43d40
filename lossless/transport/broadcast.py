"""Broadcast messages of fanout exchanges, published and received without waiting.

Redis keeps none of them: each consumer has a copy in its memory alone, and a message that shall run again is
delivered again to this consumer only. A subscriber never waits for a message and never connects by itself: the event
loop may have seen the number of another socket.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import time
from typing import Any, Protocol

import redis
from kombu.asynchronous import get_event_loop
from kombu.log import get_logger
from kombu.transport import redis as _kombu_redis
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid
from redis.client import PubSub

from lossless.transport.inflight_messages import MessageHolder

logger = get_logger("lossless.transport")


class PrefetchSlots(Protocol):
    """The part of the prefetch limit that broadcasts use."""

    def delivers(self, delivery_tag: str) -> bool:
        """Return whether a message was delivered and is not settled."""

    def get(self, delivery_tag: str) -> Any:
        """Return a message that was delivered."""

    def free(self, delivery_tag: str) -> None:
        """Free the slot of a settled message."""


class BroadcastChannel(Protocol):
    """The part of the channel that broadcasts use."""

    qos: PrefetchSlots
    holder: MessageHolder | None

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """Return a client for one command."""

    def put(self, queue: str, message: dict[str, Any]) -> None:
        """Put a message into a queue."""

    def listens_as(self, exchange: str) -> str | None:
        """Return the queue name that subscribes to a fanout exchange, None if there is no subscription."""

    def hand_over(self, message: dict[str, Any], queue: str) -> None:
        """Deliver a message to a queue's consumers."""


class Broadcasts:
    """The broadcast messages of one channel: those that it publishes, and those delivered and not settled."""

    def __init__(self, channel: BroadcastChannel) -> None:
        self.channel = channel
        self._heard_by: int | None = None

    def publish(self, message: dict[str, Any], topics: list[str]) -> None:
        """Publish a message. Raises redis-py's errors."""
        self._heard_by, payload = None, dumps(message)
        with self.channel.conn_or_acquire() as client:
            self._heard_by = sum(int(client.publish(topic, payload)) for topic in topics)

    def heard_by(self) -> int | None:
        """Return how many clients received the last publication, once; None if it failed.

        Those that listen to a replica are not counted, and nor are those of another database.
        """
        heard_by, self._heard_by = self._heard_by, None
        return heard_by

    def holds(self, delivery_tag: str) -> bool:
        """Return whether a tag is that of an unsettled broadcast message; an owner's own tags begin with its name."""
        holder = self.channel.holder
        return self.channel.qos.delivers(delivery_tag) and (
            holder is None or not delivery_tag.startswith(f"{holder.owner}.")
        )

    def replace(self, delivery_tag: str, message: dict[str, Any], queue: str | None, eta: float | None) -> None:
        """Put ``message`` into ``queue``, or without a queue deliver it here when due; then settle the old one.

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


kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs

#: Seconds to wait for the rest of a message that has begun to arrive.
REST_WITHIN = 1.0


class BroadcastSubscriber(PubSub):
    """redis-py's subscriber, which never waits for a message, and never connects by itself to read one."""

    def parse_response(self, block: bool = True, timeout: float = 0) -> Any:
        """Return the message that has arrived, None if none has.

        Parameters:
            block: kombu's way to ask: nothing is waited for, since its event loop has seen that there is something.
            timeout: seconds to wait for the beginning of a message where `block` is not set (`get_message`).

        Raises `redis.ConnectionError` where the connection is closed, `redis.TimeoutError` where the rest of a message
        does not come.
        """
        connection: Any = self.connection
        if connection is None or connection._sock is None:
            raise redis.ConnectionError("the connection of published messages was closed")
        if not connection.can_read(timeout=0 if block else timeout):
            return None
        return super().parse_response(block=False, timeout=REST_WITHIN)  # type: ignore[no-untyped-call]


class PrefixedBroadcastSubscriber(kombu_redis.PrefixedRedisPubSub, BroadcastSubscriber):  # type: ignore[misc]
    """The broadcast subscriber under a ``global_keyprefix``."""

    def __init__(self, pool: Any, prefix: str) -> None:
        super().__init__(pool)
        self.global_keyprefix = prefix
