"""The lookout: one process of all that share a broker sees that idle workers learn of what has come.

An idle worker waits on a channel of its own (its bell), on one connection for all of its queues, and is noted as
idle in Redis. The lookout has Redis tell it when a queue with idle workers changes (``CLIENT TRACKING``), and rings:
one idle worker a message, with nothing in it. So what a message costs does not grow with how many are idle, and
nobody has taken anything by waiting: a worker that was rung and does not come, because it is frozen or dead, delays
the message until the next one is rung (`COME_WITHIN`).

The place of the lookout is a key that runs out (`LEASE`) unless it is renewed, so that another takes it over. Until
then, and whatever else goes wrong, idle workers look for themselves now and then (`LOOK_AGAIN` in idling.py).
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterable
from time import monotonic, sleep
from typing import Any

import redis
from kombu.log import get_logger

from lossless.transport.scripts import RING
from lossless.transport.stored import Keys

logger = get_logger("lossless.transport")

#: Seconds for which the place is the lookout's after it was last heard of.
LEASE = 1.0

#: Seconds between attempts to take a place that is free, all workers together.
APPLY_EVERY = 0.25

#: The longest that one worker waits between its attempts, however many there were: dead ones are counted for a while.
APPLY_WITHIN = 1.0

#: Seconds that a worker which was rung has to come; then another one is rung.
COME_WITHIN = 0.1

#: Seconds after which a worker that has not looked for itself is idle no longer.
SEEN_WITHIN = 15.0

#: Seconds between looks where Redis does not tell of changes.
LOOK_EVERY = 0.02

#: Seconds between rings that follow each other: what comes in between is rung for together.
PAUSE = 0.001

#: What RING answers where nobody was the lookout.
NOBODY = 2

#: What an owner listens to beside its own bell.
EVERYBODY = "everybody"

#: Seconds after which queues without idle workers are forgotten.
FORGET_EVERY = 60.0


class Lookout:
    """A process's part in ringing for idle workers, at one broker.

    Parameters:
        pool: the pool whose connections' settings are used; none is taken from it.
        keys: the names of the keys.
        wanted: whether this process consumes still.
    """

    def __init__(self, pool: Any, keys: Keys, wanted: Callable[[], bool]) -> None:
        self.pool = pool
        self.keys = keys
        self.wanted = wanted
        self.name = uuid.uuid4().hex
        self._thread: threading.Thread | None = None
        self._apply_at = 0.0
        self._forget_at = 0.0
        #: Whether Redis has forgotten who is the lookout, and with that perhaps who is idle.
        self._forgotten = False
        #: Queues with idle workers, as in Redis, and whether any was there at the last ring.
        self._queues: dict[bytes, bool] = {}

    def apply(self, run: Callable[..., Any], rivals: int) -> None:
        """Take the place where it is free, now and then; ``rivals``: about how many may. Raises redis-py's errors."""
        now = monotonic()
        if now < self._apply_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._apply_at = now + min(APPLY_EVERY * max(1, rivals), APPLY_WITHIN) * random.uniform(0.8, 1.2)
        if self._ring(lambda keys, args: run(RING, keys, args)) is not None:
            self._thread = threading.Thread(target=self._work, name="transport-lookout", daemon=True)
            self._thread.start()

    # -- the thread

    def _work(self) -> None:
        connection = self.pool.connection_class(**{**self.pool.connection_kwargs, "protocol": 3})
        try:
            self._look(connection)
        except (redis.RedisError, OSError) as exc:
            logger.debug("The lookout stopped: %r", exc)
        finally:
            connection.disconnect()

    def _look(self, connection: Any) -> None:
        connection.connect()
        patience = LEASE / 3 if _tracks(connection) else LOOK_EVERY
        self._queues.clear()
        self._forgotten = True  # and the one before may have been away for a while
        while self.wanted():
            awaited = self._ring(lambda keys, args: _run(connection, keys, args))
            if awaited is None:
                return
            if self._forgotten:
                self._forgotten = False
                self._ring_all(connection)
            sleep(PAUSE)
            connection.can_read(min(patience, COME_WITHIN) if awaited else patience)
        _run(connection, [self.keys.lookout, self.keys.idle_queues], [self.name, 0, "", 0, 0, 0, "", ""])

    def _ring_all(self, connection: Any) -> None:
        _call(connection, "PUBLISH", self.keys.bell(EVERYBODY), "")

    def _ring(self, run: Callable[[list[Any], list[Any]], Any]) -> bool | None:
        """Ring for what lies there. Returns whether somebody is awaited, None if another is the lookout."""
        while True:
            queues = list(self._queues.items())
            keys: list[Any] = [self.keys.lookout, self.keys.idle_queues]
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
        forget = monotonic() >= self._forget_at
        if forget:
            self._forget_at = monotonic() + FORGET_EVERY
        terms = [self.name, int(LEASE * 1000), self.keys.bell(""), COME_WITHIN, SEEN_WITHIN, int(forget)]
        return [*terms, self.keys.gates, self.keys.aside]

    def _note(self, counts: dict[bytes, int], known: Iterable[bytes]) -> bool:
        """Note the queues with idle workers. Returns whether there are any that were not looked at."""
        looked_at = {queue for queue, idle in self._queues.items() if idle}
        self._queues = {queue: counts.get(queue, 1) > 0 for queue in known}
        return any(idle and queue not in looked_at for queue, idle in self._queues.items())


def _tracks(connection: Any) -> bool:
    """Have Redis tell this connection of what changes. Returns whether it does."""
    try:
        _call(connection, "CLIENT", "TRACKING", "ON", "NOLOOP")
        return True
    except redis.ResponseError as exc:
        logger.info("Redis does not tell of changes (%r): idle workers are rung for every %s s", exc, LOOK_EVERY)
        return False


def _run(connection: Any, keys: list[Any], args: list[Any]) -> Any:
    try:
        return _call(connection, "EVALSHA", RING.sha, len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return _call(connection, "EVAL", RING.text, len(keys), *keys, *args)


def _call(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()
