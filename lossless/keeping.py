"""The keeper: one thread per process and broker that shows that the process lives, and tends what lies in
Redis.

It beats for the owners of its process, sends what the event loop could not settle, moves waiting messages
that are due, and puts back what dead owners held. A thread, because a worker's main loop may be blocked for
longer than a dead owner is waited for (a task under ``-P solo``, a slow disk, a broker that does not
answer) while it lives.

An owner is dead when its beat has not changed for ``dead_after`` seconds *of uninterrupted watching*:
seconds of this process's own monotonic clock, counted from nothing again whenever the watcher itself was
asleep or could not reach Redis. So neither a difference of clocks, nor a Redis that was frozen, restarted
or cut off from everybody, nor a watcher that was paused, lets a living owner look dead. The price: after
the last worker was killed, the next one to start watches for ``dead_after`` seconds before it puts back.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger

from lossless.holding import CHUNK, Holder
from lossless.scripts import BEAT, EPOCH_FIELD, MOVE_DUE, SWEEP, Script
from lossless.stored import Keys, marked
from lossless.working import running_tags, stopping

logger = get_logger("lossless.transport")

#: What a Redis that is down, starting, failing over, full or misconfigured raises. All of it may pass.
UNAVAILABLE = (redis.RedisError, OSError)

#: Seconds between attempts to reach a Redis that does not answer.
RETRY_INTERVAL = 0.5


@dataclass
class Watch:
    """Which owners have stopped (pure): `dead` is told the beats and the time, and names the dead.

    Parameters:
        dead_after: seconds of uninterrupted watching without a beat.
    """

    dead_after: float
    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    _watched_at: float | None = None

    def dead(self, beats: dict[str, str], now: float) -> list[str]:
        """Return the dead, given each owner's beat and the watcher's monotonic time in seconds."""
        if self._watched_at is None or now - self._watched_at > self.dead_after / 2:
            self._seen.clear()
        self._watched_at = now
        since = {owner: self._since(owner, beat, now) for owner, beat in beats.items()}
        self._seen = {owner: (beats[owner], at) for owner, at in since.items()}
        return [owner for owner, at in since.items() if now - at >= self.dead_after]

    def _since(self, owner: str, beat: str, now: float) -> float:
        seen = self._seen.get(owner)
        return seen[1] if seen is not None and seen[0] == beat else now


class Keeper:
    """Tends the holders of one process at one broker.

    Parameters:
        client: a client of its own, usable from any thread, that prefixes nothing.
        keys: the names of the keys.
        dead_after: seconds after which an owner that does not beat is dead.
        due_interval: seconds between looks for due messages, all workers together.
    """

    def __init__(self, client: Any, keys: Keys, dead_after: float, due_interval: float) -> None:
        self.client = client
        self.keys = keys
        self.due_interval = due_interval
        self.beat_interval = dead_after / 6
        self.holders: set[Holder] = set()
        #: When Redis last answered, on the monotonic clock.
        self.contact_at = 0.0
        self._watch = Watch(dead_after)
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._beat_at = self._due_at = 0.0
        self._owners = 1
        self._idle: dict[str, float] = {}
        self._down = False

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Call a script, loading it where Redis does not know it (it forgets at a restart)."""
        try:
            answer = self.client.evalsha(script.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            answer = self.client.eval(script.text, len(keys), *keys, *args)
        self.contact_at = monotonic()
        return answer

    def holder(self) -> Holder:
        """Return a new holder that this keeper tends, and start the thread where it does not run."""
        holder = Holder(self.keys, self.run, self.wake)
        with self._lock:
            self.holders.add(holder)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="transport-keeper", daemon=True)
                self._thread.start()
        return holder

    def wake(self) -> None:
        """Have the thread settle at once."""
        self._wake.set()

    def probe(self) -> None:
        """Have the thread find out at once whether Redis answers."""
        self._beat_at = 0.0
        self._wake.set()

    # -- the thread

    def _work(self) -> None:
        pause = 0.0
        while self.holders:
            self._wake.wait(pause)
            self._wake.clear()
            try:
                self._turn()
            except UNAVAILABLE as exc:
                self._unavailable(exc)
                pause = RETRY_INTERVAL
                threading.Event().wait(pause)  # a wake-up must not turn this into a hot loop
            except Exception:
                logger.exception("The keeper of taken messages failed, and goes on")
                pause = RETRY_INTERVAL
            else:
                self._available()
                pause = max(0.0, min(self._beat_at, self._due_at, monotonic() + 0.1) - monotonic())

    def _unavailable(self, exc: Exception) -> None:
        if not self._down:
            self._down = True
            logger.warning("Redis is not available (%r): trying again every %s s", exc, RETRY_INTERVAL)

    def _available(self) -> None:
        if self._down:
            self._down = False
            logger.warning("Redis is available again")

    def _turn(self) -> None:
        if monotonic() >= self._beat_at or self._down:  # first: nothing else may keep a living owner from it
            self._beat()
            self._sweep()
            self._beat_at = monotonic() + self.beat_interval
        for holder in tuple(self.holders):
            holder.settle()
            if holder.orphaned:
                self._tend_orphan(holder)
        if monotonic() >= self._due_at:
            self._move_due()
            # The looks of all workers together come every due_interval, however many there are.
            share = self.due_interval * max(1, self._owners)
            self._due_at = monotonic() + share * random.uniform(0.8, 1.2)

    def _tend_orphan(self, holder: Holder) -> None:
        running = set() if stopping() else running_tags()
        now = monotonic()
        for tag in tuple(holder.taken):
            if tag in running:
                self._idle.pop(tag, None)
            elif now - self._idle.setdefault(tag, now) > 1:
                holder.give_back(tag, front=True)  # its task was cancelled: nobody will settle it
        if not holder.taken and holder.leave():
            self.forget(holder)

    def forget(self, holder: Holder) -> None:
        """Tend a holder no longer."""
        with self._lock:
            self.holders.discard(holder)
        self._idle = {tag: at for tag, at in self._idle.items() if not tag.startswith(holder.owner)}

    def _beat(self) -> None:
        owners = [holder.owner for holder in tuple(self.holders) if holder.epoch]
        gone = {_text(owner) for owner in self.run(BEAT, [self.keys.owners], owners)}
        for holder in tuple(self.holders):
            if holder.owner in gone:
                holder.stale = True

    def _sweep(self) -> None:
        beats = {_text(owner): _text(beat) for owner, beat in self.client.hgetall(self.keys.owners).items()}
        self._owners = len(beats)
        own = {holder.owner for holder in tuple(self.holders)}
        for owner in self._watch.dead(beats, monotonic()):
            if owner not in own:
                self._put_back(owner, beats[owner])

    def _put_back(self, owner: str, beat: str) -> None:
        held: dict[bytes, bytes] = self.client.hgetall(self.keys.taken(owner))
        newest_first = sorted((f for f in held if _text(f) != EPOCH_FIELD), key=int, reverse=True)
        keys = [self.keys.taken(owner), self.keys.owners]
        count = 0
        for start in range(0, max(1, len(newest_first)), CHUNK):
            args: list[Any] = [owner, beat]
            for name in newest_first[start : start + CHUNK]:
                key, _, raw = held[name].partition(b"\0")
                args += [name, key, marked(raw, restored=True)]
            count += max(0, self.run(SWEEP, keys, args))
        if count:
            logger.warning("Put back %d messages that a dead worker held", count)

    def _move_due(self) -> None:
        prefix = self.keys.waiting("")
        while self.run(MOVE_DUE, [self.keys.waiting_queues], [prefix, CHUNK]) >= CHUNK:
            pass

    def close(self) -> None:
        """At the process's end: settle, give back, leave. What fails is left to the others' sweep."""
        for holder in tuple(self.holders):
            try:
                for tag in sorted(holder.taken, key=lambda tag: int(tag.rpartition(".")[2]), reverse=True):
                    holder.give_back(tag, front=True)
                holder.settle()
                holder.leave()
            except UNAVAILABLE as exc:
                logger.warning("Could not give back %d messages: %r", len(holder.taken), exc)
            self.forget(holder)
        self.wake()


_keepers: dict[tuple[int, Any], Keeper] = {}
_keepers_lock = threading.Lock()


def keeper_of(broker: Any, make: Callable[[], Keeper]) -> Keeper:
    """Return this process's keeper at ``broker`` (anything hashable), made by ``make`` at first."""
    with _keepers_lock:
        key = (os.getpid(), broker)
        if key not in _keepers:
            _keepers[key] = make()
        return _keepers[key]


@atexit.register
def _close_keepers() -> None:
    for (pid, _), keeper in tuple(_keepers.items()):
        if pid == os.getpid():
            keeper.close()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
