"""Redis outages and failovers: which errors may pass, how long something stays stopped, and connections that leave a
replica. Behind one address a replica may take over while open connections lead to the old master: so a connection
that was refused by a replica is made anew before its next command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

import redis
from kombu.asynchronous import get_event_loop
from kombu.log import get_logger
from redis.sentinel import MasterNotFoundError

logger = get_logger("lossless.transport")

#: The errors of a Redis that is down, starting, failing over, full or misconfigured. All of them may pass.
UNAVAILABLE = (redis.RedisError, OSError)

#: Seconds between attempts to reach a Redis that does not answer.
RETRY_INTERVAL = 0.5


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error says that Redis is unavailable or no master, not that it refuses this one command."""
    return not isinstance(error, redis.ResponseError) or is_refused_by_replica(error)


#: The states of a Redis in which it refuses commands: the class of its error, its words, and what to do. The state's
#: own word is not enough: redis-py cuts some off, and a queue's name may contain one.
_REFUSING_STATES: tuple[tuple[type[Exception] | None, str, str], ...] = (
    (
        redis.OutOfMemoryError,
        "command not allowed when used memory",
        "Redis is full and refuses writes: raise its maxmemory or free memory",
    ),
    (
        None,
        "MISCONF (Errors writing|.* configured to save)",
        "Redis cannot save its data and refuses writes: see its log, and make room on its disk",
    ),
    (redis.BusyLoadingError, "is loading the dataset in memory", "Redis loads its files after a start: wait"),
    (
        redis.ReadOnlyError,
        "You can't write against a read only",
        "this Redis is a replica, or becomes one: connect to the primary",
    ),
    (
        None,
        "NOREPLICAS Not enough good",
        "Redis refuses writes because too few replicas follow it: start them (INFO replication)",
    ),
    (
        MasterNotFoundError,
        "No master found for",
        "no Sentinel names a master that is up: wait for the failover, start the Sentinels, correct the master's name, "
        "or give the Sentinels' own password (broker_transport_options['sentinel_kwargs'])",
    ),
)


def advise_redis_error(error: BaseException) -> str | None:
    """Return what Redis' refusal of a command means and what to do; None for an error of another kind.

    kombu's errors have only the text of Redis'.
    """
    text = str(error)
    known = (
        advice
        for kind, words, advice in _REFUSING_STATES
        if re.search(words, text) or (kind and isinstance(error, kind))
    )
    return next(known, None)


def describe_redis_error(error: BaseException) -> str:
    """Return an error as text: what it means and what to do if that is known, and Redis' own words.

    The client's `repr` of an error has none of them.
    """
    words = str(error).rstrip(". ")
    raw = f"{type(error).__name__}: {words}" if words else repr(error)
    advice = advise_redis_error(error)
    return f"{advice} ({raw})" if advice else raw


class OutageProbe(Protocol):
    """The part of the heartbeat keeper that an outage uses: it probes whether Redis answers."""

    def probe(self) -> None:
        """Probe Redis at once, in another thread."""

    def answered_since(self, moment: float) -> bool:
        """Return whether Redis has answered since a moment of the monotonic clock."""

    def explained(self, error: Exception) -> str:
        """Return an error as text, with what to do where that is known."""


class RedisOutage:
    """An activity that a failure of Redis has stopped, or not.

    Parameters:
        what: what is stopped, as the log names it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._since = self._until = 0.0
        self._said = ""

    def begins(self, error: Exception, keeper: OutageProbe) -> None:
        """Note a failure, and log it once until `ends`."""
        self._since = monotonic()
        self._until = self._since if is_unavailable(error) else self._since + RETRY_INTERVAL
        keeper.probe()
        # The text of a lost connection changes from one attempt to the next.
        said = type(error).__name__ if is_unavailable(error) else str(error)
        if said != self._said:
            goes_on = "Redis answers" if is_unavailable(error) else "that is fixed"
            logger.warning("%s stopped: %s. It goes on as soon as %s", self.what, keeper.explained(error), goes_on)
        self._said = said

    def lasts(self, keeper: OutageProbe | None) -> bool:
        """Return whether Redis has not answered the keeper since the last failure, or has just refused a command."""
        return keeper is not None and (not keeper.answered_since(self._since) or monotonic() < self._until)

    def ends(self) -> None:
        """Note that Redis has done again what it failed to do."""
        self._said = ""


#: The answers of a server that is no master. Redis before 7 puts them into the text of a script's error.
REPLICA_SIGNS = ("READONLY", "UNBLOCKED", "MASTERDOWN")


def is_refused_by_replica(error: BaseException) -> bool:
    """Return whether an error says that the server is a replica, or has become one."""
    if isinstance(error, redis.ReadOnlyError):
        return True
    return isinstance(error, redis.ResponseError) and any(sign in str(error) for sign in REPLICA_SIGNS)


class _LeavesReplica:
    """A mixin for connection classes of redis-py: a connection refused by a replica is made anew."""

    _sock: Any
    pid: int
    _refused = False
    _on_lost: Callable[[], None] | None = None

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        """Connect. An error about Sentinels says no more than the master's name: redis-py adds a page for each."""
        try:
            return super().connect(*args, **kwargs)  # type: ignore[misc]
        except MasterNotFoundError as error:
            raise MasterNotFoundError(str(error).partition(" : ")[0]) from None

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Read an answer, and note a replica's refusal."""
        # Answers to a pipeline's other commands may still be in flight: it is left at the next command.
        try:
            answer = super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.ResponseError as error:
            self._refused = self._refused or is_refused_by_replica(error)
            raise
        if type(answer) is list and not PLAIN_TYPES.issuperset(map(type, answer)):
            self._refused = self._refused or any(map(_is_refusal_answer, answer))  # what EXEC answers
        return answer

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command, over a new connection if the last one led to a replica."""
        if self._refused:
            self._refused = False
            self.disconnect()
        super().send_packed_command(*args, **kwargs)  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        """Disconnect, and call the callback."""
        if self._sock is not None and self._on_lost is not None:
            self._on_lost()
        self._unpoll()
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def _unpoll(self) -> None:
        """Stop the event loop from watching the socket while it is still open.

        A process of the pool may have inherited it. Closed here, it would stay open there, and epoll would tell of it
        for ever, by a number that the next connection has (epoll(7), question 6).
        """
        hub = get_event_loop()
        if hub is not None and self._sock is not None and self.pid == os.getpid():
            with suppress(OSError, ValueError):
                hub.poller.unregister(self._sock.fileno())


#: The types of answers that are no errors.
PLAIN_TYPES: Final = frozenset((bytes, int, list, type(None)))


def _is_refusal_answer(answer: Any) -> bool:
    return isinstance(answer, redis.ResponseError) and is_refused_by_replica(answer)


def make_leaving_class(connection_class: type[Any], on_lost: Callable[[], None] | None = None) -> type[Any]:
    """Return a class of connections of this kind that leave a replica.

    Parameters:
        connection_class: a connection class of redis-py.
        on_lost: called when an open connection is given up, whatever for, in whichever thread meets it.
    """
    told = {"_on_lost": None if on_lost is None else staticmethod(on_lost)}
    bases = (connection_class,) if issubclass(connection_class, _LeavesReplica) else (_LeavesReplica, connection_class)
    return type(connection_class.__name__, bases, told)
