"""The lookout: one process of all that share a broker sees that idle workers learn of what has come.

An idle worker waits on a channel of its own (its bell), on one connection for all of its queues, and is noted as
idle in Redis. The lookout has Redis tell it which lists change (``CLIENT TRACKING``), marks those that hold something
as ready, for those that take, and rings: one idle worker a message, with nothing in it. So what a message costs grows
neither with how many are idle nor with the number of queues, and nobody has taken anything by waiting: a worker that
was rung and does not come, because it is frozen or dead, delays the message until the next one is rung
(`COME_WITHIN`).

The place of the lookout is a key that runs out (`LEASE`) unless it is renewed, so that another takes it over. Until
then, and whatever else goes wrong, idle workers look for themselves now and then (`LOOK_AGAIN` in idling.py).
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
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

#: Seconds after which the lookout looks at all lists, whatever Redis has told of.
SCAN_EVERY = 5.0

#: Most lists that are looked at one by one; where more have changed, all of them are.
MOST_CHANGED = 500

#: Seconds between looks for idle workers and sets of queues that are gone; and after which a set is.
FORGET_EVERY = 60.0
SET_SEEN_WITHIN = 900.0


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
        #: Whether Redis tells of changes, and the lists that have changed since the last look.
        self._tracks = False
        self._changed: set[bytes] = set()
        self._own_keys = (f"{keys.prefix}_idle".encode(), keys.aside.encode(), keys.gates.encode())
        #: The lists of each set of queues (empty: not known yet), and those that are marked as ready.
        self._lists: dict[bytes, list[bytes]] = {}
        self._marked: set[bytes] = set()
        self._scan_at = 0.0

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
        self._tracks = _tracks(connection, self._changed_in_redis)
        patience = LEASE / 3 if self._tracks else LOOK_EVERY
        self._lists, self._marked, self._changed, self._scan_at = {}, set(), set(), 0.0
        self._forgotten = True  # and the one before may have been away for a while
        while self.wanted():
            awaited = self._ring(lambda keys, args: _run(connection, keys, args))
            if awaited is None:
                return
            if self._forgotten:
                self._forgotten = False
                _call(connection, "PUBLISH", self.keys.bell(EVERYBODY), "")
            sleep(PAUSE)
            if connection.can_read(min(patience, COME_WITHIN) if awaited else patience):
                _read_changes(connection)
        _run(connection, self._names(), [self.name, 0, *self._terms(0.0), 0])

    def _changed_in_redis(self, message: Any) -> None:
        """Note what Redis tells of: the keys that have changed, or none of them where it has forgotten all."""
        changed = message[1]
        if changed is None:
            self._scan_at = 0.0
        else:
            self._changed.update(key for key in changed if not key.startswith(self._own_keys))

    def _ring(self, run: Callable[[list[Any], list[Any]], Any]) -> bool | None:
        """Ring for what lies there. Returns whether somebody is awaited, None if another is the lookout."""
        awaited = False
        while True:
            lists, self._changed = self._changed | (self._marked if awaited else set()), set()
            if monotonic() >= self._scan_at or not self._tracks or len(lists) > MOST_CHANGED:
                self._scan_at = monotonic() + SCAN_EVERY
                lists = {name for names in self._lists.values() for name in names}
            forget = 0.0
            if monotonic() >= self._forget_at:
                self._forget_at, forget = monotonic() + FORGET_EVERY, SET_SEEN_WITHIN
            keys = self._names()
            asked = [name for name, names in self._lists.items() if not names]
            args = [self.name, int(LEASE * 1000), *self._terms(forget), len(keys) + 1, *asked]
            answer = run([*keys, *lists], args)
            if not answer[0]:
                return None
            state, awaits, sets, marked, found = answer
            awaited, self._forgotten = bool(awaits), self._forgotten or state == NOBODY
            new = set(sets) - self._lists.keys()
            self._lists = {name: self._lists.get(name, []) for name in sets}
            for name, names in zip(asked, found, strict=True):
                if name in self._lists:
                    self._lists[name] = names
                    self._changed.update(names)
            # What was emptied meanwhile is told of again only once it was looked at.
            self._changed |= self._marked - set(marked) - lists
            self._marked = set(marked)
            unread = self._marked - lists if awaited else set()
            if not self._changed and not unread and not new:
                return awaited

    def _names(self) -> list[Any]:
        keys = self.keys
        names = [keys.lookout, keys.queue_sets, keys.sets_of_lists, keys.left, keys.sets_seen]
        return [*names, *(kind(name.decode()) for name in self._lists for kind in (keys.idle, keys.ready))]

    def _terms(self, forget: float) -> list[Any]:
        keys = self.keys
        terms = [keys.bell(""), COME_WITHIN, SEEN_WITHIN, forget, keys.gates, keys.aside]
        return [*terms, keys.idle(""), keys.ready(""), keys.lists_of_set("")]


def _tracks(connection: Any, changed: Callable[[Any], None]) -> bool:
    """Have Redis tell this connection of what changes, and ``changed`` of that. Returns whether it does."""
    connection._parser.set_invalidation_push_handler(changed)
    try:
        _call(connection, "CLIENT", "TRACKING", "ON", "NOLOOP")
        return True
    except redis.ResponseError as exc:
        logger.info("Redis does not tell of changes (%r): idle workers are rung for every %s s", exc, LOOK_EVERY)
        return False


def _read_changes(connection: Any) -> None:
    while connection.can_read(0):
        connection.read_response(push_request=True)


def _run(connection: Any, keys: list[Any], args: list[Any]) -> Any:
    try:
        return _call(connection, "EVALSHA", RING.sha, len(keys), *keys, *args)
    except redis.exceptions.NoScriptError:
        return _call(connection, "EVAL", RING.text, len(keys), *keys, *args)


def _call(connection: Any, *command: Any) -> Any:
    connection.send_command(*command)
    return connection.read_response()
