"""What is published, read without waiting for it.

redis-py waits for a published message for as long as it takes, whatever ``socket_timeout`` is, and connects anew first
where its connection is closed (`redis.client.PubSub.parse_response` of redis-py 8). kombu calls it when the event loop
has seen its socket readable (`kombu.transport.redis.Channel._receive_one`). Where something else of the same turn has
closed that connection, it would be a new one, subscribed to nothing: the worker would stand still for ever.
"""

from __future__ import annotations

from typing import Any

import redis
from redis.client import PubSub

#: Seconds that the rest of a message may take whose beginning is there.
REST = 1.0


class Published(PubSub):
    """redis-py's subscriber, which never waits for a message, and never connects by itself to read one."""

    def parse_response(self, block: bool = True, timeout: float = 0) -> Any:
        """Return what has come, None where nothing has.

        Parameters:
            block: not looked at: nothing is waited for.
            timeout: not looked at either.

        Raises `redis.ConnectionError` where the connection is closed, `redis.TimeoutError` where the rest of a message
        does not come.
        """
        connection: Any = self.connection
        if connection is None or connection._sock is None:
            raise redis.ConnectionError("the connection of published messages was closed")
        if not connection.can_read(timeout=0):
            return None
        return super().parse_response(block=False, timeout=REST)  # type: ignore[no-untyped-call]
