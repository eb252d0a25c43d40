"""What is published, read without waiting for it.

redis-py waits for a published message for as long as it takes, whatever ``socket_timeout`` is, and connects anew first
where its connection is closed (`redis.client.PubSub.parse_response` of redis-py 8). kombu calls it when the event loop
has seen its socket readable (`kombu.transport.redis.Channel._receive_one`). That may have been another connection's
number (see `lossless.transport.replica`), or one that was closed in the same turn: a new one, subscribed to nothing,
would be waited on for ever. Half a message is waited for here for a second, and no longer.
"""

from __future__ import annotations

from typing import Any

import redis
from kombu.transport import redis as _kombu_redis
from redis.client import PubSub

kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs

#: Seconds that the rest of a message may take whose beginning is there.
REST = 1.0


class Published(PubSub):
    """redis-py's subscriber, which never waits for a message, and never connects by itself to read one."""

    def parse_response(self, block: bool = True, timeout: float = 0) -> Any:
        """Return what has come, None where nothing has.

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
        return super().parse_response(block=False, timeout=REST)  # type: ignore[no-untyped-call]


class PrefixedPublished(kombu_redis.PrefixedRedisPubSub, Published):  # type: ignore[misc]
    """The same under a ``global_keyprefix``."""

    def __init__(self, pool: Any, prefix: str) -> None:
        super().__init__(pool)
        self.global_keyprefix = prefix
