"""The poller, the connections to Redis that the event loop polls, and their behaviour in an outage of Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty
from time import monotonic
from typing import Any, Protocol, TypeVar

import redis
from kombu.log import get_logger
from kombu.transport import redis as _kombu_redis

from lossless.transport.redis_outage import UNAVAILABLE, OutageProbe, describe_redis_error

logger = get_logger("lossless.transport")
kombu_redis: Any = _kombu_redis  # its stubs know nothing of what a subclass needs

#: Seconds that one poll lasts at most without an event loop: how soon a connection that owes an answer is noticed.
LONGEST_POLL = 1.0

#: How many packed arguments are kept, and the longest that are.
MOST_KEPT = 2_000
MOST_BYTES_KEPT = 200


class PolledChannel(Protocol):
    """The part of a channel that the poller uses."""

    active_fanout_queues: set[str]
    _in_listen: Any

    def turn(self) -> None:
        """Deliver the messages that have arrived, and send pending commands."""

    def deliver(self) -> bool:
        """Deliver the messages that have arrived; return whether there were any."""

    def stop_listening(self) -> None:
        """Drop the connection of published messages."""


class OutageKeeper(OutageProbe, Protocol):
    """The part of the heartbeat keeper that the poller uses."""

    @property
    def unavailable(self) -> bool:
        """Return whether Redis cannot be reached, not even over new connections."""


class Poller(kombu_redis.MultiChannelPoller):  # type: ignore[misc]
    """kombu's poller, polling the lines of takers instead of ``BRPOP`` connections."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether an event loop polls: then outages of Redis are waited out instead of raised, since a restarted
        #: consumer would forget what its tasks hold.
        self.waits_out_outages = False
        #: Whether there are other brokers to go to: then only a cut is waited out, not an unavailable Redis.
        self._fails_over = False
        self._keeper: OutageKeeper | None = None
        self._listen_failed_at = 0.0
        #: The event loop's readers, by file descriptor.
        self._watched: Mapping[int, Any] = {}
        self._fds: dict[PolledConnection, int] = {}

    def start_event_loop(self, readers: Mapping[int, Any], *, fails_over: bool) -> None:
        """Have an event loop poll from now on.

        Parameters:
            readers: what the event loop watches, by file descriptor.
            fails_over: whether there are other brokers to go to.
        """
        self.waits_out_outages, self._watched, self._fails_over = True, readers, fails_over

    def set_keeper(self, keeper: OutageKeeper) -> None:
        """Set the keeper that probes whether Redis answers."""
        self._keeper = keeper

    @property
    def outage_keeper(self) -> OutageKeeper | None:
        """The keeper with which outages of Redis are waited out; None: they are raised."""
        return self._keeper if self.waits_out_outages else None

    @property
    def fds(self) -> dict[int, Any]:
        """The sockets that the event loop does not watch yet: kombu registers all of them at every turn."""
        return {fd: entry for fd, entry in self._fd_to_chan.items() if fd not in self._watched}

    def watch(self, channel: object, line: PolledConnection) -> None:
        """Poll a connection."""
        sock = line.connection._sock
        self._fds[line] = sock.fileno()
        self._fd_to_chan[self._fds[line]] = (channel, line)
        self._chan_to_sock[channel, line, "LINE"] = sock
        self.poller.register(sock, self.eventflags)

    def unwatch(self, line: PolledConnection) -> None:
        """Poll a line no longer."""
        fd = self._fds.pop(line, None)
        if fd is None:
            return
        channel, _ = self._fd_to_chan.pop(fd, (None, None))
        self._chan_to_sock.pop((channel, line, "LINE"), None)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._unregister_from_poll(fd)

    def on_poll_start(self) -> None:
        """Send pending commands on all channels.

        Raises `redis.ConnectionError` where it is the next broker's turn.
        """
        # Without channels it is closed, and the event loop does not forget it.
        if self._channels and self._fails_over and self._keeper is not None and self._keeper.unavailable:
            raise redis.ConnectionError("Redis is unavailable: failing over to the next broker")
        for channel in tuple(self._channels):
            channel.turn()
            if channel.active_fanout_queues:
                self._listen(channel)

    def _listen(self, channel: PolledChannel) -> None:
        if self._listens(channel):
            return
        keeper = self.outage_keeper
        if keeper is None:
            self._register_LISTEN(channel)
        elif keeper.answered_since(self._listen_failed_at):
            try:
                self._register_LISTEN(channel)
            except UNAVAILABLE as exc:
                self._listen_failed(channel, exc, keeper)

    def _listens(self, channel: PolledChannel) -> bool:
        """Return whether a channel is subscribed already, in fewer steps than kombu needs to find that."""
        client = channel.__dict__.get("subclient")
        connection = None if client is None or not channel._in_listen else client.connection
        return (
            connection is not None
            and connection._sock is not None
            and (channel, client, "LISTEN") in self._chan_to_sock
        )

    def _listen_failed(self, channel: PolledChannel, exc: Exception, keeper: OutageKeeper) -> None:
        logger.warning(
            "listening for remote control and events stopped: %s; it resumes when Redis answers",
            describe_redis_error(exc),
        )
        self._listen_failed_at = monotonic()
        keeper.probe()
        channel.stop_listening()

    def on_readable(self, fileno: int) -> Any:
        """Read the answer on a connection, or a published message."""
        channel, kind = self._fd_to_chan.get(fileno, (None, None))
        if isinstance(kind, PolledConnection):
            return kind.on_readable(kind)
        try:
            return super().on_readable(fileno)
        except UNAVAILABLE as exc:
            if channel is None or self.outage_keeper is None:
                raise
            self._listen_failed(channel, exc, self.outage_keeper)

    # -- without an event loop

    def get(self, callback: Callable[..., Any], timeout: float | None = None) -> None:
        """Deliver one message of a queue, or read a published one, and return; for `drain_events`.

        kombu's callers count the returns (a pidbox takes each for a worker's answer), and what is not delivered when
        they stop must still be in Redis: so not one message more.

        Parameters:
            timeout: seconds to wait at most, None for as long as it takes.

        Raises `queue.Empty` when the time is over, and redis-py's errors.
        """
        until = None if timeout is None else monotonic() + timeout
        self._in_protected_read = True
        try:
            while not self._delivers(until):
                if until is not None and monotonic() >= until:
                    self.maybe_restore_messages()
                    raise Empty
        finally:
            self._in_protected_read = False
            while self.after_read:
                self.after_read.pop()()

    def _delivers(self, until: float | None) -> bool:
        """Poll once, for a second at most; return whether a message was delivered."""
        self.maybe_refresh_binding_expiry()
        if any(channel.deliver() for channel in tuple(self._channels)):
            return True
        self.on_poll_start()
        left = LONGEST_POLL if until is None else max(0.0, min(LONGEST_POLL, until - monotonic()))
        return any(self._handled(fileno) for fileno, _ in self.poller.poll(left) or ())

    def _handled(self, fileno: int) -> bool:
        """Read a socket; return whether a message was delivered, or a subscription confirmed, as kombu has it."""
        channel, kind = self._fd_to_chan.get(fileno, (None, None))
        try:
            if isinstance(kind, PolledConnection):
                return bool(kind.on_readable(kind))
            if channel is not None:
                channel.handlers[kind]()
            return channel is not None
        except Empty:
            return False

    def maybe_check_brpop_health(self) -> None:
        """Do nothing: there is no ``BRPOP``, and fetchers watch their own connections."""

    def maybe_restore_messages(self) -> None:
        """Put back the messages that workers on kombu's own transport left in ``unacked``, as that transport does."""
        try:
            super().maybe_restore_messages()
        except UNAVAILABLE as exc:
            logger.debug("reading unacked failed: %r", exc)

    def on_poll_init(self, poller: Any) -> None:
        """Use the event loop's poller."""
        self.poller = poller
        self.maybe_restore_messages()


class PolledConnection:
    """A connection on which one command at a time is sent, and read when the poller says so."""

    def __init__(self, connection: Any, on_readable: Callable[[PolledConnection], object]) -> None:
        self.connection = connection
        self.on_readable = on_readable
        self._sent_at: float | None = None

    @property
    def busy(self) -> bool:
        """Return whether an answer is pending."""
        return self._sent_at is not None

    def overdue(self, now: float, most: float) -> bool:
        """Return whether an answer is overdue by more than ``most`` seconds; ``now`` is monotonic."""
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
        """Disconnect: no answer is pending any more."""
        with suppress(*UNAVAILABLE):
            self.connection.disconnect()
        self._answered()

    def _answered(self) -> None:
        self._sent_at = None


class BellConnection(PolledConnection):
    """A connection on which an owner hears that a message has arrived."""

    def listen(self, *channels: str) -> None:
        """Listen from now on. Raises redis-py's errors."""
        self.connection.send_command("SUBSCRIBE", *channels)
        for _ in channels:
            self.connection.read_response(push_request=True)

    def read(self) -> bool:
        """Read what has arrived, and return whether the bell was rung. Raises redis-py's errors."""
        rung = False
        if not self.connection.can_read(timeout=0):
            return rung  # the event loop spoke of another connection, which had its number: this one is not waited for
        while True:
            heard = self.connection.read_response(push_request=True)  # the answer to a PING, or what was published
            self._answered()
            rung = rung or (isinstance(heard, list) and heard[0] == b"message")
            if not self.connection.can_read(timeout=0):
                return rung


class ConnectionPoller(Protocol):
    """The part of the poller that `ConnectionMaker` uses."""

    def watch(self, channel: Any, line: PolledConnection) -> None:
        """Poll an open connection."""

    def unwatch(self, line: PolledConnection) -> None:
        """Poll a line no longer."""


class PooledChannel(Protocol):
    """The part of the channel that `ConnectionMaker` uses."""

    @property
    def pool(self) -> Any:
        """The pool whose connection settings are used; no connection is taken from it."""

    @property
    def poller(self) -> ConnectionPoller:
        """The poller of the connections."""


class PackedArguments(dict[object, bytes]):
    """Arguments of commands as Redis reads them: most of a take's are those of the one before."""

    def __missing__(self, argument: object) -> bytes:
        raw = argument if isinstance(argument, bytes) else str(argument).encode()
        packed = b"$%d\r\n%b\r\n" % (len(raw), raw)
        if len(raw) <= MOST_BYTES_KEPT:
            if len(self) >= MOST_KEPT:
                self.clear()
            self[argument] = packed
        return packed


class CommandPacker:
    """The writer of commands in Redis's protocol, in a fraction of the time that redis-py's takes.

    A take has some fifty arguments, and one or two messages come of it.
    """

    def __init__(self) -> None:
        self._arguments = PackedArguments()

    def pack(self, *command: object) -> list[bytes]:
        r"""Return a command of texts, numbers and bytes as Redis reads it.

        >>> CommandPacker().pack("LLEN", b"orders", 7)
        [b'*3\r\n$4\r\nLLEN\r\n$6\r\norders\r\n$1\r\n7\r\n']
        """
        arguments = self._arguments
        return [b"*%d\r\n" % len(command) + b"".join([arguments[argument] for argument in command])]


AnyLine = TypeVar("AnyLine", bound=PolledConnection)


class ConnectionMaker:
    """The maker of one channel's connections, which it has polled."""

    def __init__(self, channel: PooledChannel) -> None:
        self.channel = channel

    def make(self, kind: type[AnyLine], on_readable: Callable[[PolledConnection], object], **settings: Any) -> AnyLine:
        """Return a connection that is not open yet, with settings of its own beside the pool's."""
        pool = self.channel.pool
        settings = {"command_packer": CommandPacker(), **pool.connection_kwargs, **settings}
        return kind(pool.connection_class(**settings), on_readable)

    def open(self, line: PolledConnection) -> None:
        """Open a connection, and have it polled. Raises redis-py's errors."""
        line.connection.connect()
        self.channel.poller.watch(self.channel, line)

    def close(self, line: PolledConnection) -> None:
        """Stop polling a connection, and close it."""
        self.channel.poller.unwatch(line)
        line.cut()
