"""Connections that the event loop polls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

import redis

from lossless.transport.outages import UNAVAILABLE


class Line:
    """A connection on which one command at a time is sent, and read when the poller says so."""

    def __init__(self, connection: Any, on_readable: Callable[[Line], object]) -> None:
        self.connection = connection
        self.on_readable = on_readable
        self._sent_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        return self._sent_at is not None

    def overdue(self, now: float, most: float) -> bool:
        """Whether Redis has owed an answer for longer than ``most`` seconds; ``now`` is monotonic."""
        waits = 0.0 if self._sent_at is None else now - self._sent_at
        # Unread is not unanswered: under `solo` a task keeps the event loop for as long as it runs.
        return waits > most and not self.connection.can_read(timeout=0)

    def send(self, *command: Any) -> None:
        """Send a command."""
        self.connection.send_command(*command)
        self._sent_at = monotonic()

    def read(self) -> Any:
        """Read the answer. Raises redis-py's errors."""
        if not self.busy:
            raise redis.ConnectionError("Redis closed an idle connection")
        try:
            return self.connection.read_response()
        finally:
            self._answered()

    def cut(self) -> None:
        """Disconnect: no answer is to come any more."""
        with suppress(*UNAVAILABLE):
            self.connection.disconnect()
        self._answered()

    def _answered(self) -> None:
        self._sent_at = None


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
        if not self.connection.can_read(timeout=0):
            return rung  # the event loop spoke of another connection, which had its number: this one is not waited for
        while True:
            heard = self.connection.read_response(push_request=True)  # the answer to a PING, or what was published
            self._answered()
            rung = rung or (isinstance(heard, list) and heard[0] == b"message")
            if not self.connection.can_read(timeout=0):
                return rung


class Polling(Protocol):
    """Who polls lines: what `Lines` needs of the poller."""

    def watch(self, channel: Any, line: Line) -> None:
        """Poll a line that is connected."""

    def unwatch(self, line: Line) -> None:
        """Poll a line no longer."""


class Pooled(Protocol):
    """Whose connections they are: what `Lines` needs of the channel."""

    @property
    def pool(self) -> Any:
        """The pool whose connections' settings are used; none is taken from it."""

    @property
    def poller(self) -> Polling:
        """Who polls them."""


AnyLine = TypeVar("AnyLine", bound=Line)


class Lines:
    """Makes one channel's lines, and has them polled."""

    def __init__(self, channel: Pooled) -> None:
        self.channel = channel

    def make(self, kind: type[AnyLine], on_readable: Callable[[Line], object], **settings: Any) -> AnyLine:
        """Return a line that is not connected yet, with settings of its own beside the pool's."""
        pool = self.channel.pool
        return kind(pool.connection_class(**{**pool.connection_kwargs, **settings}), on_readable)

    def open(self, line: Line) -> None:
        """Connect a line, and have it polled. Raises redis-py's errors."""
        line.connection.connect()
        self.channel.poller.watch(self.channel, line)

    def close(self, line: Line) -> None:
        """Have it polled no longer, and disconnect it."""
        self.channel.poller.unwatch(line)
        line.cut()
