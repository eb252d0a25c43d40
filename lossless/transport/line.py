"""A connection that the event loop polls."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import redis


class Line:
    """A connection on which one command at a time is sent, and read when the poller says so."""

    def __init__(self, connection: Any, on_readable: Callable[[Line], object]) -> None:
        self.connection = connection
        self.on_readable = on_readable
        self.fd: int | None = None
        self.sent_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        return self.sent_at is not None

    def waits_since(self, now: float) -> float:
        """Return for how many seconds an answer has been due, 0 where none is; ``now`` is monotonic."""
        return 0.0 if self.sent_at is None else now - self.sent_at

    def send(self, *command: Any) -> None:
        """Send a command."""
        self.connection.send_command(*command)
        self.sent_at = monotonic()

    def read(self) -> Any:
        """Read the answer. Raises redis-py's errors."""
        if not self.busy:
            raise redis.ConnectionError("Redis closed an idle connection")
        try:
            return self.connection.read_response()
        finally:
            self.sent_at = None


class Bell(Line):
    """A connection on which an owner hears that something has come."""

    def listen(self, *channels: str) -> None:
        """Listen from now on. Raises redis-py's errors."""
        self.connection.send_command("SUBSCRIBE", *channels)
        for _ in channels:
            self.connection.read_response(push_request=True)

    def read(self) -> bool:
        """Read what there is. Returns whether the bell was rung. Raises redis-py's errors."""
        rung = False
        while True:
            heard = self.connection.read_response(push_request=True)  # the answer to a PING, or what was published
            self.sent_at = None
            rung = rung or (isinstance(heard, list) and heard[0] == b"message")
            if not self.connection.can_read(timeout=0):
                return rung
