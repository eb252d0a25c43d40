"""How a channel that found too little waits for the next message.

An owner hears a bell, whatever the number of its queues (lookout.py): a wait takes nothing, so a worker that is frozen
or killed while it waits holds nothing. A channel that takes without acknowledgement alone has no owner, and what it
takes by waiting nobody must give back: it waits with ``BRPOP``, as kombu does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Any, Protocol

import redis

from lossless.transport.arrivals import Arrivals
from lossless.transport.holding import Holder
from lossless.transport.line import Bell, Line, Lines, Pooled
from lossless.transport.lookout import EVERYBODY
from lossless.transport.outages import UNAVAILABLE

#: Seconds that a wait without an owner blocks. Only how soon a dead connection is noticed hangs on it.
WAIT_SECONDS = 10

#: Seconds after which the queues are looked at even though nobody rang: the bell or the lookout may be cut off.
LOOK_AGAIN = 5.0


class Served(Pooled, Protocol):
    """What waiting needs of the channel."""

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """A client for one command."""

    def served(self, queue: str) -> None:
        """Note which queue was served last."""


class Idling:
    """The wait of one channel.

    Parameters:
        channel: the channel.
        lines: makes its connections.
        arrivals: told of what is taken by waiting.
        on_readable: called when there is something to `read`.
    """

    def __init__(
        self, channel: Served, lines: Lines, arrivals: Arrivals, on_readable: Callable[[Line], object]
    ) -> None:
        self.channel = channel
        self._lines = lines
        self._arrivals = arrivals
        self._on_readable = on_readable
        self._line: Line | None = None
        #: The number of the connection that takes by waiting, and the queue of each list it waits for.
        self._number: int | None = None
        self._waits_for: dict[str, str] = {}

    @property
    def listens(self) -> bool:
        """Whether a bell would be heard."""
        return isinstance(self._line, Bell)

    def listen(self, holder: Holder, looked_at: float) -> None:
        """Hear the owner's bell from now on. Raises redis-py's errors.

        Parameters:
            holder: the owner.
            looked_at: when the queues were looked at last, on the monotonic clock.
        """
        if self._line is not None and not self.listens:
            self.end()
            self.drop()
        if self._line is None:
            bell = self._lines.make(Bell, self._on_readable, health_check_interval=0)
            self._line = bell
            self._lines.open(bell)
            bell.listen(holder.keys.bell(holder.owner), holder.keys.bell(EVERYBODY))
        elif not self._line.busy and monotonic() - looked_at > LOOK_AGAIN:
            self._line.send("PING")  # a cut that nobody has told of shows

    def wait(self, lists: dict[str, str]) -> bool:
        """Wait for a message that needs no acknowledgement, in these lists (each with its queue).

        Returns whether a wait in others, which ends with this, has taken something. Raises redis-py's errors.
        """
        came = False
        if self._line is None:
            self._line = self._lines.make(Line, self._on_readable)
            self._lines.open(self._line)
            self._number = _number(self._line)
        if self._line.busy and lists.keys() != self._waits_for.keys():
            came = self.end()
        if not self._line.busy:
            self._waits_for = lists
            self._line.send("BRPOP", *lists, WAIT_SECONDS)
        return came

    def read(self) -> bool:
        """Read the answer. Returns whether something has come. Raises redis-py's errors."""
        found = self._line.read() if self._line is not None else None
        if found and not self.listens:
            key, raw = found
            queue = self._waits_for[key.decode()]
            self._arrivals.come(queue, key.decode(), raw, 0, 0.0)
            self.channel.served(queue)
        return bool(found)

    def end(self) -> bool:
        """Have a wait that takes end at once, with what it may have taken. Returns whether it has taken something."""
        if self._line is not None and self._line.busy and self._number is not None and not self.listens:
            with suppress(*UNAVAILABLE), self.channel.conn_or_acquire() as client:
                client.client_unblock(self._number)
                return self.read()
        return False

    def overdue(self, now: float, patience: float) -> bool:
        """Whether Redis owes the answer for more than ``patience`` seconds over the time of the wait."""
        blocks = 0 if self.listens else WAIT_SECONDS
        return self._line is not None and self._line.overdue(now, blocks + patience)

    def drop(self) -> None:
        """Drop the connection."""
        if self._line is not None:
            self._lines.close(self._line)
            self._line = None


def _number(line: Line) -> int | None:
    """The number by which Redis knows a connection, None where this user may not ask for it."""
    with suppress(redis.exceptions.NoPermissionError):
        line.connection.send_command("CLIENT", "ID")
        return int(line.connection.read_response())
    return None
