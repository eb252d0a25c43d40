"""The heartbeat keeper: one thread per process and broker that sends heartbeats and maintains the messages in
Redis.

It sends settlements that the event loop could not send, moves due messages, and puts back the messages of dead owners
(message_recovery.py). It is a thread, because the main loop of a living worker may be blocked for longer than
`dead_after`: by a task under ``-P solo``, a slow disk, a broker that does not answer.

Redis may have lost its last writes (a snapshot restored, a replica promoted). So each holder compares its messages with
Redis after every lost connection and every change of the server. Each step of the keeper fails for itself: one foreign
value must not stop the heartbeats or the delays.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger

from lossless.background_thread import BackgroundThread, start_thread
from lossless.lua import Script
from lossless.transport.idle_workers import IdleWorkerNotifier
from lossless.transport.inflight_messages import CHUNK, MessageHolder
from lossless.transport.message_recovery import DeadOwnerSweep, OrphanedHolders
from lossless.transport.redis_outage import (
    RETRY_INTERVAL,
    UNAVAILABLE,
    describe_redis_error,
    is_refused_by_replica,
    is_unavailable,
    make_leaving_class,
)
from lossless.transport.redis_permissions import RedisPermissions
from lossless.transport.script_hook import UNHOOKED
from lossless.transport.storage_layout import TransportKeys, decode_text
from lossless.transport.transport_scripts import MOVE_DUE, SEND_HEARTBEATS

logger = get_logger("lossless.transport")

#: The longest pause between beats, in seconds: versions that do not read an owner's own time wait for their own,
#: by default 30 s.
BEAT_INTERVAL = 5.0

#: Seconds between tries at the end of a process to have done what Redis refuses.
PAUSES_AT_THE_END = (0.5, 1.0)

#: Commands that a process sends at once through its keeper, at most, however many channels it has.
MOST_AT_ONCE = 8


class HeartbeatKeeper:
    """The keeper of one process's holders at one broker.

    Parameters:
        client: a client of its own, with a pool of its own, usable from any thread, that prefixes nothing.
        keys: the names of the keys.
        dead_after: seconds after which an owner that does not beat is dead.
        due_interval: seconds between looks for due messages, all workers together.
    """

    def __init__(self, client: Any, keys: TransportKeys, dead_after: float, due_interval: float) -> None:
        self.client = client
        self.keys = keys
        self.due_interval = due_interval
        self.dead_after = dead_after
        self.beat_interval = min(dead_after / 6, BEAT_INTERVAL)
        self._holders: set[MessageHolder] = set()
        self._orphans = OrphanedHolders()
        #: When Redis last answered, on the monotonic clock.
        self._contact_at = 0.0
        self._notifier = IdleWorkerNotifier(client.connection_pool, keys, lambda: bool(self._holders))
        self._sweep = DeadOwnerSweep(keys, self.run, self._fields, dead_after)
        self._permissions = RedisPermissions(keys, self.run)
        self._turns = threading.BoundedSemaphore(min(MOST_AT_ONCE, client.connection_pool.max_connections))
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: BackgroundThread | None = None
        self._beat_at = self._due_at = self._sweep_at = 0.0
        self._failures = 0
        self._faults: dict[str, str] = {}
        self._server: tuple[Any, Any] | None = None
        pool = client.connection_pool
        pool.connection_class = make_leaving_class(pool.connection_class, on_lost=self.require_comparison)

    @property
    def unavailable(self) -> bool:
        """Return whether Redis cannot be reached, not even over new connections."""
        return self._failures > 1

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """Call a script, and load it first if Redis does not know it (it forgets scripts at a restart)."""
        try:
            with self._turns:  # the pool has no more connections than it may have, and waits for none
                answer = script.run(self.client, keys, args)
        except redis.ResponseError as error:
            if not is_refused_by_replica(error):
                self._contact_at = monotonic()
            raise
        self._contact_at = monotonic()
        return answer

    def _fields(self, key: str) -> dict[bytes, bytes]:
        with self._turns:
            return self.client.hgetall(key)  # type: ignore[no-any-return]

    def holder(self, ack: Script = UNHOOKED.ack) -> MessageHolder:
        """Return a new holder of this keeper, and start the thread if it does not run.

        Parameters:
            ack: the script by which it acknowledges.
        """
        holder = MessageHolder(self.keys, self.run, self.wake, self.dead_after, ack)
        with self._lock:
            self._holders.add(holder)
            if self._thread is None:
                self._thread = start_thread("transport-keeper", self._work)
        return holder

    def release(self, holder: MessageHolder) -> None:
        """Release a holder whose channel is closed: it ends as soon as it holds nothing.

        Messages that tasks still work on are kept for them. It is repeated until Redis answers.
        """
        if holder not in self._holders or holder in self._orphans:
            return
        try:
            if holder.leave():
                self._forget(holder)
        except UNAVAILABLE as exc:
            logger.warning(
                "giving messages back failed: %s; it is repeated until Redis takes them", describe_redis_error(exc)
            )
        if holder in self._holders:
            self._orphans.add(holder)
        self.wake()

    def require_comparison(self) -> None:
        """Have every holder compare its messages with those in Redis."""
        for holder in tuple(self._holders):
            holder.require_comparison()

    def wake(self) -> None:
        """Have the thread settle at once."""
        self._wake.set()

    def probe(self) -> None:
        """Have the thread find out at once whether Redis answers."""
        self._beat_at = 0.0
        self._wake.set()

    def answered_since(self, moment: float) -> bool:
        """Return whether Redis has answered since a moment of the monotonic clock."""
        return self._contact_at >= moment

    def check_permissions(self, lists: Iterable[str]) -> None:
        """Log what the ACL refuses to this user; ``lists`` are the keys of a consumed queue."""
        self._permissions.check(lists)

    def explained(self, error: Exception) -> str:
        """Return an error as text; if the ACL refuses something, say what: that is no outage, and does not pass."""
        return self._permissions.explained(error)

    # -- the thread

    def _work(self) -> None:
        pause = 0.0
        while self._is_needed():
            self._wake.wait(pause)
            self._wake.clear()
            try:
                self._turn()
            except Exception as exc:
                self._failed(exc)
                pause = RETRY_INTERVAL
                threading.Event().wait(pause)  # a wake-up must not turn this into a hot loop
            else:
                self._available()
                pause = max(0.0, min(self._beat_at, self._due_at, self._sweep_at, monotonic() + 0.1) - monotonic())

    def _is_needed(self) -> bool:
        """Return whether there are holders; if not, the thread ends, and the next holder starts another."""
        with self._lock:
            if not self._holders:
                self._thread = None
            return self._thread is not None

    def _failed(self, exc: Exception) -> None:
        if not isinstance(exc, UNAVAILABLE):
            logger.exception("the heartbeat keeper failed, and goes on")
            return
        self._failures += 1
        if self._failures == 1:
            logger.warning(
                "Redis is not available: %s; trying again every %s s", describe_redis_error(exc), RETRY_INTERVAL
            )
        # Idle ones: one that another thread uses is its own to give up.
        self.client.connection_pool.disconnect(inuse_connections=False)
        self.require_comparison()

    def _available(self) -> None:
        if self._failures:
            self._failures = 0
            logger.warning("Redis is available again")

    def _turn(self) -> None:
        if monotonic() >= self._beat_at or self._failures:  # first: nothing else may keep a living owner from it
            self._run_step("beating", self._beat)
            self._run_step("asking which server this is", self._recognize)
            self._beat_at = monotonic() + self.beat_interval
        if monotonic() >= self._sweep_at or self._failures:
            self._run_step("looking for dead owners", self._look_for_dead)
            self._sweep_at = monotonic() + self._sweep.pause()
        for holder in tuple(self._holders):
            self._run_step(f"settling for {holder.owner}", partial(self._tend, holder))
        self._run_step("standing as notifier", partial(self._notifier.apply, self.run, self._rivals()))
        if monotonic() >= self._due_at:
            self._run_step("moving what is due", self._move_due)
            # The looks of all workers together come every due_interval, however many there are.
            share = self.due_interval * max(1, self._sweep.owners)
            self._due_at = monotonic() + share * random.uniform(0.8, 1.2)

    def _run_step(self, doing: str, step: Callable[[], bool | None]) -> None:
        """Do one step; its error is logged once and stops no other step, unless Redis is unavailable.

        Parameters:
            step: returns False if it had nothing to try: an earlier fault may last.
        """
        try:
            tried = step()
        except Exception as exc:
            if isinstance(exc, UNAVAILABLE) and is_unavailable(exc):
                raise
            if self._faults.get(doing) != str(exc):
                logger.error("the heartbeat keeper failed at %s, and tries again: %s", doing, self.explained(exc))
            self._faults[doing] = str(exc)
        else:
            if tried is not False:
                self._faults.pop(doing, None)

    def _tend(self, holder: MessageHolder) -> None:
        holder.settle()
        if holder in self._orphans and self._orphans.tend(holder):
            self._forget(holder)

    def _forget(self, holder: MessageHolder) -> None:
        """Forget a holder."""
        with self._lock:
            self._holders.discard(holder)
        self._orphans.discard(holder)
        self._faults.pop(f"settling for {holder.owner}", None)

    def _rivals(self) -> int:
        """Return about how many processes there are: each has as many owners as this one."""
        return self._sweep.owners // max(1, len(self._holders))

    def _beat(self) -> None:
        owners = [holder.owner for holder in tuple(self._holders) if holder.registered]
        gone = {decode_text(owner) for owner in self.run(SEND_HEARTBEATS, [self.keys.owners], owners)}
        for holder in tuple(self._holders):
            if holder.owner in gone:
                holder.require_comparison()

    def _recognize(self) -> None:
        """Require a comparison if another server answers, or one that has been a replica meanwhile."""
        with self._turns, self.client.pipeline(transaction=False) as pipe:
            pipe.info("server").info("replication")
            server, replication = pipe.execute()
        if replication.get("role", "master") != "master":
            raise redis.ReadOnlyError("READONLY it is a replica")
        found = (server.get("run_id"), replication.get("master_replid"))
        before, self._server = self._server, found
        if before not in (None, found):
            logger.info("Redis was restarted, or a replica took over: held messages are compared with those in Redis")
            self.require_comparison()

    def _look_for_dead(self) -> None:
        own = {holder.owner for holder in tuple(self._holders)}
        for owner in self._sweep.dead(own):
            self._run_step(f"putting back what {owner} held", partial(self._sweep.put_back, owner))

    def _move_due(self) -> None:
        keys = [self.keys.waiting_queues, self.keys.undecodable]
        moved = CHUNK
        while moved >= CHUNK:
            moved, *wrong = self.run(MOVE_DUE, keys, [self.keys.waiting(""), CHUNK])
            if wrong:
                raise RuntimeError("; ".join(map(decode_text, wrong)))

    def close(self) -> None:
        """Settle, give back and leave at the process's end; after three failures the sweep of others does it."""
        for holder in tuple(self._holders):
            for attempt in range(3):
                try:
                    self._close(holder)
                    break
                except UNAVAILABLE as exc:
                    logger.warning(
                        "%d messages could not be given back: %s; other workers take them over",
                        len(holder.tags),
                        describe_redis_error(exc),
                    )
                    threading.Event().wait(attempt * RETRY_INTERVAL / 2)
            self._forget(holder)
        self.wake()

    def _close(self, holder: MessageHolder) -> None:
        holder.give_back_all()
        # What is refused is tried three times: the process must end.
        for pause in (0.0, *PAUSES_AT_THE_END):
            threading.Event().wait(pause)
            if holder.leave(at_once=True) or not holder.refused:
                return
        logger.error("%d steps bundled with acknowledgements are lost: Redis refused them", holder.refused)


_keepers: dict[tuple[int, Any], HeartbeatKeeper] = {}
_keepers_lock = threading.Lock()


def get_keeper(broker: Any, make: Callable[[], HeartbeatKeeper]) -> HeartbeatKeeper:
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
