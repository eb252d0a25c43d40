"""Idle workers: how each waits for a message, and the one process that rings for them.

An idle owner listens on a bell, one connection for all of its queues, and takes nothing by waiting. The notifier is one
process of all that share a broker. Redis tells it of queues that change, and it rings one idle worker per message; if
that worker does not come, it rings the next. The notifier's lease is a key that expires. Idle workers also poll now
and then.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from time import monotonic, sleep
from typing import Any, Protocol

import redis
from kombu.log import get_logger

from lossless.background_thread import BackgroundThread, start_thread
from lossless.transport.arrival_buffer import ArrivalBuffer
from lossless.transport.event_loop_poller import BellConnection, ConnectionMaker, PolledConnection, PooledChannel
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.redis_outage import UNAVAILABLE
from lossless.transport.storage_layout import TransportKeys
from lossless.transport.transport_scripts import RING_IDLE_OWNERS

#: Seconds that a wait without an owner blocks. Only how soon a dead connection is noticed hangs on it.
WAIT_SECONDS = 10

#: Seconds after which an idle owner polls its queues without a ring: the bell or the notifier may be cut off.
LOOK_AGAIN = 5.0


class ServedChannel(PooledChannel, Protocol):
    """The part of the channel that waiting uses."""

    def conn_or_acquire(self) -> AbstractContextManager[Any]:
        """Return a client for one command."""

    def served(self, queue: str) -> None:
        """Note which queue was served last."""


class IdleWait:
    """The wait of one channel.

    Parameters:
        channel: the channel.
        lines: makes its connections.
        arrivals: gets the messages that are taken by waiting.
        on_readable: called when there is something to `read`.
    """

    def __init__(
        self,
        channel: ServedChannel,
        lines: ConnectionMaker,
        arrivals: ArrivalBuffer,
        on_readable: Callable[[PolledConnection], object],
    ) -> None:
        self.channel = channel
        self._lines = lines
        self._arrivals = arrivals
        self._on_readable = on_readable
        self._line: PolledConnection | None = None
        #: The number of the connection that takes by waiting, and the queue of each list it waits for.
        self._number: int | None = None
        self._waits_for: dict[str, str] = {}

    @property
    def listens(self) -> bool:
        """Return whether the bell is listened to."""
        return isinstance(self._line, BellConnection)

    def listen(self, holder: MessageHolder, looked_at: float) -> None:
        """Listen to the owner's bell from now on. Raises redis-py's errors.

        Parameters:
            holder: the owner.
            looked_at: when the queues were polled last, on the monotonic clock.
        """
        if self._line is not None and not self.listens:
            self.end()
            self.drop()
        if self._line is None:
            bell = self._lines.make(BellConnection, self._on_readable, health_check_interval=0)
            self._line = bell
            self._lines.open(bell)
            bell.listen(holder.keys.bell(holder.owner), holder.keys.bell(EVERYBODY))
        elif not self._line.busy and monotonic() - looked_at > LOOK_AGAIN:
            self._line.send("PING")  # a cut that nobody has told of shows

    def wait(self, lists: dict[str, str]) -> bool:
        """Wait for a message that needs no acknowledgement, in these lists (each with its queue).

        Returns whether the wait in other lists, which ends with this, has taken a message. Raises redis-py's errors.
        """
        came = False
        if self._line is None:
            self._line = self._lines.make(PolledConnection, self._on_readable)
            self._lines.open(self._line)
            self._number = _connection_number(self._line)
        if self._line.busy and lists.keys() != self._waits_for.keys():
            came = self.end()
        if not self._line.busy:
            self._waits_for = lists
            self._line.send("BRPOP", *lists, WAIT_SECONDS)
        return came

    def read(self) -> bool:
        """Read the answer, and return whether a message has arrived. Raises redis-py's errors."""
        found = self._line.read() if self._line is not None else None
        if found and not self.listens:
            key, raw = found
            queue = self._waits_for[key.decode()]
            self._arrivals.come(queue, key.decode(), raw, 0, 0.0)
            self.channel.served(queue)
        return bool(found)

    def end(self) -> bool:
        """End a taking wait at once, and return whether it has taken a message."""
        if self._line is not None and self._line.busy and self._number is not None and not self.listens:
            with suppress(*UNAVAILABLE), self.channel.conn_or_acquire() as client:
                client.client_unblock(self._number)
                return self.read()
        return False

    def overdue(self, now: float, patience: float) -> bool:
        """Return whether the answer is overdue by more than ``patience`` seconds."""
        blocks = 0 if self.listens else WAIT_SECONDS
        return self._line is not None and self._line.overdue(now, blocks + patience)

    def drop(self) -> None:
        """Drop the connection."""
        if self._line is not None:
            self._lines.close(self._line)
            self._line = None


def _connection_number(line: PolledConnection) -> int | None:
    """Return the number by which Redis knows a connection, None if this user may not ask for it."""
    with suppress(redis.exceptions.NoPermissionError):
        line.connection.send_command("CLIENT", "ID")
        return int(line.connection.read_response())
    return None


logger = get_logger("lossless.transport")

#: Seconds for which the notifier's lease lasts after it was last renewed.
LEASE = 1.0

#: Seconds between attempts to take a free lease, all workers together.
APPLY_EVERY = 0.25

#: The longest that one worker waits between its attempts, however many there were: dead ones are counted for a while.
APPLY_WITHIN = 1.0

#: Seconds that a worker which was rung has to come; then another one is rung.
COME_WITHIN = 0.1

#: Seconds after which a worker that has not looked for itself is idle no longer.
SEEN_WITHIN = 15.0

#: Seconds between polls if Redis does not tell of changes.
LOOK_EVERY = 0.02

#: Seconds between rings that follow each other: what comes in between is rung for together.
PAUSE = 0.001

#: RING_IDLE_OWNERS's answer if there was no notifier.
NOBODY = 2

#: What an owner listens to beside its own bell.
EVERYBODY = "everybody"

#: Seconds after which queues without idle workers are forgotten.
FORGET_EVERY = 60.0


class IdleWorkerNotifier:
    """The notifier of idle workers at one broker, of which one process at a time holds the lease.

    Parameters:
        pool: the pool whose connections' settings are used; none is taken from it.
        keys: the names of the keys.
        wanted: whether this process still consumes.
    """

    def __init__(self, pool: Any, keys: TransportKeys, wanted: Callable[[], bool]) -> None:
        self.pool = pool
        self.keys = keys
        self.wanted = wanted
        self.name = uuid.uuid4().hex
        self._thread: BackgroundThread | None = None
        self._apply_at = 0.0
        self._forget_at = 0.0
        self._renew_at = 0.0
        #: Whether Redis has lost the notifier's lease, and with that perhaps the idle workers.
        self._forgotten = False
        #: Queues with idle workers, as in Redis, and whether any was there at the last ring.
        self._queues: dict[bytes, bool] = {}

    def apply(self, run: Callable[..., Any], rivals: int) -> bool:
        """Try now and then to take a free lease, and return whether it was tried now. Raises redis-py's errors.

        Parameters:
            rivals: about how many try.
        """
        now = monotonic()
        if now < self._apply_at or (self._thread is not None and self._thread.is_alive()):
            return False
        self._apply_at = now + min(APPLY_EVERY * max(1, rivals), APPLY_WITHIN) * random.uniform(0.8, 1.2)
        if self._ring(lambda keys, args: run(RING_IDLE_OWNERS, keys, args)) is not None:
            self._thread = start_thread("transport-notifier", self._work)
        return True

    # -- the thread

    def _work(self) -> None:
        connection = self.pool.connection_class(**{**self.pool.connection_kwargs, "protocol": 3})
        try:
            self._look(connection)
        except (redis.RedisError, OSError) as exc:
            logger.debug("the notifier stopped: %r", exc)
        finally:
            connection.disconnect()

    def _look(self, connection: Any) -> None:
        connection.connect()
        patience = LEASE / 3 if _track_changes(connection) else LOOK_EVERY
        self._queues.clear()
        self._forgotten = True  # and the one before may have been away for a while
        while self.wanted():
            awaited = self._ring(lambda keys, args: _run_ring(connection, keys, args))
            if awaited is None:
                return
            if self._forgotten:
                self._forgotten = False
                self._ring_all(connection)
            sleep(PAUSE)
            connection.can_read(min(patience, COME_WITHIN) if awaited else patience)
        _run_ring(connection, [self.keys.notifier, self.keys.idle_queues], [self.name, 0, "", 0, 0, 0, "", "", 0])

    def _ring_all(self, connection: Any) -> None:
        _call_redis(connection, "PUBLISH", self.keys.bell(EVERYBODY), "")

    def _ring(self, run: Callable[[list[Any], list[Any]], Any]) -> bool | None:
        """Ring for queued messages. Returns whether a rung worker has not come yet, None if another is the notifier."""
        while True:
            queues = list(self._queues.items())
            keys: list[Any] = [self.keys.notifier, self.keys.idle_queues]
            sizes = []
            for queue, idle in queues:
                key, *lists = queue.split(b"\0")
                # A queue's lists are of interest, to us and to what Redis tells us, while somebody idle waits.
                keys += [key, *lists] if idle else [key]
                sizes.append(len(lists) if idle else 0)
            answer = run(keys, [*self._terms(), *sizes])
            if not answer[0]:
                return None
            state, awaited, counts, known = answer
            self._forgotten = self._forgotten or state == NOBODY
            if not self._note(dict(zip(self._queues, counts, strict=True)), known):
                return bool(awaited)

    def _terms(self) -> list[Any]:
        now = monotonic()
        forget, renew = now >= self._forget_at, now >= self._renew_at
        if forget:
            self._forget_at = now + FORGET_EVERY
        if renew:
            self._renew_at = now + LEASE / 2
        terms = [self.name, int(LEASE * 1000), self.keys.bell(""), COME_WITHIN, SEEN_WITHIN, int(forget)]
        return [*terms, self.keys.gates, self.keys.aside, int(renew)]

    def _note(self, counts: dict[bytes, int], known: Iterable[bytes]) -> bool:
        """Note the queues with idle workers. Returns whether there are new ones."""
        looked_at = {queue for queue, idle in self._queues.items() if idle}
        self._queues = {queue: counts.get(queue, 1) > 0 for queue in known}
        return any(idle and queue not in looked_at for queue, idle in self._queues.items())


def _track_changes(connection: Any) -> bool:
    """Have Redis tell this connection of changed keys. Returns whether it does."""
    try:
        _call_redis(connection, "CLIENT", "TRACKING", "ON", "NOLOOP")
        return True
    except redis.ResponseError as exc:
        logger.info("Redis does not tell of changes (%r): queues are polled every %s s instead", exc, LOOK_EVERY)
        return False


def _run_ring(connection: Any, keys: list[Any], args: list[Any]) -> Any:
    try:
        return _call_redis(connection, "EVALSHA", RING_IDLE_OWNERS.sha, len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return _call_redis(connection, "EVAL", RING_IDLE_OWNERS.text, len(keys), *keys, *args)


def _call_redis(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()
