"""Connections that leave a server which is no master, or no longer one.

Behind one address (a proxy, a virtual IP, a Kubernetes Service) a replica may take over while connections that are
open already still lead to the old master, a replica by now: it answers everything, and refuses each write for ever.
Only a new connection comes to the new master. So a connection that was refused that way is made anew before its
next command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
from kombu.asynchronous import get_event_loop

#: How a server says that it is no master. Redis before 7 puts it into the text of a script's error.
SIGNS = ("READONLY", "UNBLOCKED", "MASTERDOWN")


def refused_by_replica(error: BaseException) -> bool:
    """Whether an error says that the server is a replica, or has become one."""
    if isinstance(error, redis.ReadOnlyError):
        return True
    return isinstance(error, redis.ResponseError) and any(sign in str(error) for sign in SIGNS)


class _Leaves:
    """Mixed into a connection class of redis-py."""

    _sock: Any
    pid: int
    _refused = False
    _on_lost: Callable[[], None] | None = None

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Read an answer, and note where it is a replica's refusal."""
        # Answers to a pipeline's other commands may still be under way: it is left at the next command.
        try:
            answer = super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.ResponseError as error:
            self._refused = self._refused or refused_by_replica(error)
            raise
        if type(answer) is list and any(map(_refusal, answer)):  # what EXEC answers
            self._refused = True
        return answer

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command, over a new connection if the last one led to a replica."""
        if self._refused:
            self._refused = False
            self.disconnect()
        super().send_packed_command(*args, **kwargs)  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Disconnect, and tell of it."""
        if self._sock is not None and self._on_lost is not None:
            self._on_lost()
        self._unpoll()
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def _unpoll(self) -> None:
        """Have the event loop watch the socket no longer, while it is open.

        A process of the pool may have inherited it. Closed here, it would stay open there, and epoll would tell of it
        for ever, by a number that the next connection has (epoll(7), question 6).
        """
        hub = get_event_loop()
        if hub is not None and self._sock is not None and self.pid == os.getpid():
            with suppress(OSError, ValueError):
                hub.poller.unregister(self._sock.fileno())


def _refusal(answer: Any) -> bool:
    return isinstance(answer, redis.ResponseError) and refused_by_replica(answer)


def leaving(connection_class: type[Any], on_lost: Callable[[], None] | None = None) -> type[Any]:
    """Return a class of connections of this kind that leave a replica.

    Parameters:
        connection_class: a connection class of redis-py.
        on_lost: called when an open connection is given up, whatever for, in whichever thread meets it.
    """
    told = {"_on_lost": None if on_lost is None else staticmethod(on_lost)}
    bases = (connection_class,) if issubclass(connection_class, _Leaves) else (_Leaves, connection_class)
    return type(connection_class.__name__, bases, told)
