"""Taking messages from the queues of one channel, without blocking the event loop.

One connection (the take line) carries the TAKE script: it acknowledges what has ended, and moves up to as many
messages as the prefetch limit allows from the queues, in fair turn and by priority, into the owner's hash, all in one
trip. Beyond what can begin at once it takes only what no idle owner waits for.

A take that finds too little has the owner noted as idle, and another connection (the bell) hears when something has
come, whatever the number of queues (lookout.py). A wait takes nothing, so a worker that is frozen or killed
while it waits holds nothing. A channel that takes without acknowledgement alone has no owner: it waits with ``BRPOP``,
as kombu does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any

import redis
from kombu.asynchronous import get_event_loop
from kombu.log import get_logger

from lossless.transport.holding import Holder
from lossless.transport.keeping import RETRY_INTERVAL, UNAVAILABLE, is_away
from lossless.transport.line import Bell, Line
from lossless.transport.lookout import EVERYBODY
from lossless.transport.riding import LOOKED
from lossless.transport.stored import decoded, eta_of
from lossless.transport.working import free_processes
from lossless.transport.yielding import Yielding

logger = get_logger("lossless.transport")

#: Seconds that a wait without an owner blocks. Only how soon a dead connection is noticed hangs on it.
WAIT_SECONDS = 10

#: Seconds after which the queues are looked at even though nobody rang: the bell or the lookout may be cut off.
LOOK_AGAIN = 5.0

#: Unsettled moves (messages on their way to wait, or back) beyond which nothing more is taken.
MOST_UNSETTLED = 1000


class Taker:
    """Takes for one channel.

    Parameters:
        channel: the transport's channel: its queues, its prefetch limit, its poller.
    """

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._line: Line | None = None
        self._wait: Line | None = None
        #: The number of the connection that takes by waiting, and the queue of each list it waits for.
        self._waits_as: int | None = None
        self._waits_for: dict[str, str] = {}
        #: The list keys of each queue consumed from, highest priority first.
        self._lists_kept: dict[str, list[str]] = {}
        #: Whether the owner is noted as idle, but with no process that could begin at once.
        self._saturated = False
        self._arrived: deque[tuple[str, dict[str, Any]]] = deque()
        #: Seconds by which the server's clock is ahead of this host's, as of the last look.
        self._ahead = 0.0
        self._failed_at = self._go_on_at = 0.0
        self._said = ""
        self._hungry = True
        self._looked_at = 0.0
        self._known = False
        self._yielding = Yielding()
        self._strange = False
        # of the take under way
        self._acks: list[str] = []
        self._asked = 0
        self._asked_at = 0.0
        self._first = 0
        self._lists: list[tuple[str, str]] = []

    def now(self) -> float:
        """The server's time (Unix): the clocks of workers need not agree."""
        return time() + self._ahead

    @property
    def holder(self) -> Holder | None:
        """The channel's owner, None while it consumes only what needs no acknowledgement."""
        return self.channel.holder  # type: ignore[no-any-return]

    # -- one turn

    def turn(self) -> None:
        """Deliver what has arrived, and send the next take or wait where it is time to."""
        self.deliver()
        with self._redis():
            if self._held_off():
                return
            self._check_overdue()
            if self.holder is not None and self.holder.stale:
                if self._line is not None and self._line.busy:
                    self._drop(self._line)
                self.holder.register()
                self._hungry = True
            self._next_command()

    def _next_command(self) -> None:
        if self._line is not None and self._line.busy:
            return
        credit = self._credit()
        free = self._free(credit)
        now = monotonic()
        if now - self._looked_at > LOOK_AGAIN or (self._saturated and free):
            self._hungry = True
        if self._yielding.over(self.channel.active_queues, now):
            self._hungry = True
        most = credit if self._hungry else 0
        acks = self.holder.acks_to_send() if self.holder is not None and self.holder.acks_ride else []
        if most:
            self._listen()
        if most or acks:
            self._send_take(most, free, acks)
        elif credit and self.holder is None:
            self._send_wait()

    def _credit(self) -> int:
        qos = self.channel.qos
        if not self.channel.active_queues or not qos.can_consume():
            return 0
        if self.holder is not None and self.holder.backlog > MOST_UNSETTLED:
            return 0
        if "can_consume" in vars(qos):  # Celery's worker_disable_prefetch: its limit is not known, so one by one
            return 0 if self._arrived else 1
        credit = qos.can_consume_max_estimate()
        # Without an event loop one, as kombu takes: its callers may stop after any.
        limit: int = self.channel.take_limit if self.channel.poller.endures else 1
        credit = limit if credit is None else min(credit, limit)
        return max(0, credit - len(self._arrived))

    def _free(self, credit: int) -> int:
        """Return how many of ``credit`` messages could be begun with at once."""
        free = free_processes()
        if free is None:  # no worker: a consumer that handles one message after the other
            qos = self.channel.qos
            free = 0 if len(qos._delivered) > len(qos._dirty) else 1
        return min(credit, max(0, free - len(self._arrived)))

    # -- the take line

    def _send_take(self, most: int, free: int, acks: list[str]) -> None:
        self._acks = acks
        if most:
            self._saturated = not free
        keys, args = self._take(self.channel.queues_in_turn(), most, free, waits=self._wait is not None)
        args += self.holder.with_steps(acks) if self.holder is not None else [0]
        take = self.channel.ridden.take
        command = ("EVALSHA", take.sha) if self._known else ("EVAL", take.text)
        if self._line is None:
            self._line = Line(self._connection(), self._on_taken)
            self._watch(self._line)
        self._line.send(*command, len(keys), *keys, *args)

    def _take(self, queues: list[str], most: int, free: int, *, waits: bool) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of a TAKE, and note what is asked for."""
        channel, holder = self.channel, self.holder
        self._asked, self._asked_at = most, monotonic()
        self._lists = self._lists_of(queues)
        self._first = holder.reserve(most) if holder is not None and most else 0
        # A key in any case, that an ACL with the transport's prefix allows.
        keys = [channel.keys.taken("nobody" if holder is None else holder.owner), channel.keys.idle_queues]
        keys += [channel.keys.idle(queue) for queue in queues]
        keys += [key for _, key in self._lists]
        in_turn = int(channel.queue_order_strategy == "round_robin")
        no_ack = "".join("1" if queue in channel.no_ack_queues else "0" for queue in queues)
        epoch, owner = ("", "") if holder is None else (holder.epoch, holder.owner if waits else "")
        numbers = ",".join(str(self._yielding.most(queue, monotonic())) for queue in queues)
        return keys, [epoch, self._first, most, len(queues), in_turn, no_ack, free, owner, numbers]

    def _lists_of(self, queues: list[str]) -> list[tuple[str, str]]:
        """Return (queue, list key), highest priority first.

        What is kept is kept by queue, never by their order: a fair turn comes by every permutation of them.
        """
        if len(self._lists_kept) > 2 * len(queues):
            self._lists_kept.clear()
        for queue in queues:
            if queue not in self._lists_kept:
                steps = self.channel.priority_steps
                self._lists_kept[queue] = [self.channel.list_key(queue, step) for step in steps]
        return [
            (queue, self._lists_kept[queue][rank])
            for rank in range(len(self.channel.priority_steps))
            for queue in queues
        ]

    def take_one(self, queue: str) -> dict[str, Any] | None:
        """Take one message of a queue now, for ``basic_get``. Raises redis-py's errors."""
        holder = self.holder
        if holder is None or (self._line is not None and self._line.busy):
            raise RuntimeError("basic_get and consuming on one channel at a time")
        while not self._arrived:
            if holder.stale:
                holder.register()
            try:
                keys, args = self._take([queue], 1, 1, waits=False)
                alive, now, _, _, *taken = holder.run(self.channel.ridden.take, keys, [*args, 0])
            except UNAVAILABLE:
                holder.doubt()
                raise
            if not alive:
                holder.doubt()
            elif not taken:
                return None
            self._note(taken, float(now))
        return self._arrived.popleft()[1]

    def _on_taken(self, line: Line) -> bool:
        with self._redis():
            self._read_take(line)
        return self.deliver()

    def _read_take(self, line: Line) -> None:
        try:
            alive, now, lie, refused, *taken = line.read()
        except redis.exceptions.NoScriptError:
            self._known = False
            self._acks_failed()
            return
        self._known = True
        self._said = ""
        holder = self.holder
        if holder is not None and self._acks:
            holder.acked(self._acks, refused)
        self._acks = []
        if not alive and holder is not None:
            holder.doubt()
            return
        if self._asked:
            self._hungry = len(taken) == 3 * self._asked
            self._looked_at = monotonic()
            self._note_lengths(lie)
            self._note(taken, float(now))

    def _note_lengths(self, lie: bytes) -> None:
        # The lists of the highest priority come first, one a queue.
        for (queue, _), length in zip(self._lists, lie.split(b",")[:-1], strict=False):
            if int(length) >= 0:
                self._yielding.lie(queue, int(length))

    def _note(self, taken: list[Any], now: float) -> None:
        self._ahead = now - time()
        number = self._first
        last_queue = None
        for index, raw, found in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
            last_queue, key = self._lists[index]
            self._arrive(last_queue, key, raw, number, now, found)
            number += 1
        if last_queue is not None:
            self.channel.served(last_queue)

    def _arrive(self, queue: str, key: str, raw: bytes, number: int, now: float, found: bytes = b"") -> None:
        holder = None if queue in self.channel.no_ack_queues else self.holder
        tag = holder.add(number, queue, key, raw) if holder is not None else None
        try:
            message = decoded(raw)
            properties = message["properties"]
            properties["delivery_info"]["routing_key"]
            properties["delivery_tag"] = tag or properties["delivery_tag"]
            properties.pop(LOOKED, None)  # a sender's word is none
            if tag is not None and self.channel.ridden.looks:
                properties[LOOKED] = (self._asked_at, found.decode("latin-1"))
            due = eta_of(message)
            self.channel.check_body(message)
        except Exception as exc:
            self._unreadable(tag, raw, queue, exc)
            return
        if due is not None and due - now > self.channel.wait_from and holder is not None and tag is not None:
            holder.wait(tag, due)
        else:
            self._arrived.append((queue, message))

    def _unreadable(self, tag: str | None, raw: bytes, queue: str, exc: Exception) -> None:
        """Have a message that is none replaced by what the consumer makes of it, else set it aside."""
        if tag is None or self.holder is None:
            logger.error("Took an entry of queue %r that is no message (%r), without acknowledgement", queue, exc)
            return
        if self.channel.on_unreadable is not None:
            try:
                self.channel.on_unreadable(tag, raw, queue, exc)
                self._note_strange(queue)
                return
            except Exception:
                logger.exception("An entry of queue %r that is no message could not be replaced", queue)
        key = self.holder.keys.undecodable
        logger.error("Took an entry of queue %r that is no message (%r): moved to the list %r", queue, exc, key)
        self.holder.set_aside(tag)

    def deliver(self) -> bool:
        """Hand what has arrived to the consumers, and return whether there was anything; if one raises, the rest is
        kept for the next turn.
        """
        delivered = False
        while self._arrived:
            queue, message = self._arrived[0]
            if queue in self.channel.active_queues:
                delivered = True
                self._arrived.popleft()
                self._strange = False
                self.channel.connection._deliver(message, queue)
                self._note_strange(queue)
            else:  # cancelled meanwhile
                self._return_cancelled()
        return delivered

    def strange(self) -> None:
        """Be told that the message which is being delivered is nothing for this worker, and waits for another."""
        self._strange = True

    def _note_strange(self, queue: str) -> None:
        """Leave a queue to others for a moment where this worker knows nothing of what it takes there."""
        strange, self._strange = self._strange, False
        now = monotonic()
        before = self._yielding.most(queue, now)
        pause = self._yielding.note(queue, strange, now)
        if self._yielding.most(queue, now) != before or (strange and before > 0):
            self._hungry = True  # it is idle there no longer, or again
        if pause and (hub := get_event_loop()) is not None:
            hub.call_later(pause, lambda: None)  # the loop sleeps for longer

    def _return_cancelled(self) -> None:
        """Put back what came from queues that are consumed no longer, the oldest last: it is next to run then."""
        active, kept = self.channel.active_queues, deque[tuple[str, dict[str, Any]]]()
        while self._arrived:
            queue, message = self._arrived.pop()
            if queue in active:
                kept.appendleft((queue, message))
            else:
                self._return(queue, message)
        self._arrived = kept

    def _return(self, queue: str, message: dict[str, Any]) -> None:
        """Put back what was not delivered, also what is taken without acknowledgement."""
        if queue in self.channel.no_ack_queues:
            self.channel.put_back(queue, message)
        elif self.holder is not None:
            self.holder.give_back(message["properties"]["delivery_tag"], front=True)

    # -- waiting

    def _listen(self) -> None:
        """Hear, from before the take that has the owner noted as idle, when something has come."""
        holder = self.holder
        if holder is None:
            return
        if self._wait is not None and not isinstance(self._wait, Bell):
            self._end_wait()
            self._drop(self._wait)
        if self._wait is None:
            bell = Bell(self._connection(health_check_interval=0), self._on_wait_over)
            self._wait = bell
            self._watch(bell)
            bell.listen(holder.keys.bell(holder.owner), holder.keys.bell(EVERYBODY))
        elif not self._wait.busy and monotonic() - self._looked_at > LOOK_AGAIN:
            self._wait.send("PING")  # a cut that nobody has told of shows

    def _leave(self) -> None:
        """Be idle no longer; where Redis does not answer, an owner that does not come is forgotten anyway."""
        if self.holder is None or not isinstance(self._wait, Bell) or self._held_off():
            return
        with suppress(*UNAVAILABLE), self.channel._bare().pipeline(transaction=False) as pipe:
            for queue in self._lists_kept:
                pipe.zrem(self.channel.keys.idle(queue), self.holder.owner)
            pipe.execute()

    def _send_wait(self) -> None:
        """Wait for a message that needs no acknowledgement."""
        if self._wait is None:
            self._wait = Line(self._connection(), self._on_wait_over)
            self._watch(self._wait)
            self._waits_as = self._number(self._wait)
        lists = {key: queue for queue, key in self._lists_of(self.channel.queues_in_turn())}
        if self._wait.busy and lists.keys() != self._waits_for.keys():
            self._end_wait()
        if not self._wait.busy:
            self._waits_for = lists
            self._wait.send("BRPOP", *lists, WAIT_SECONDS)

    def _number(self, line: Line) -> int | None:
        """The number by which Redis knows a connection, None where this user may not ask for it."""
        with suppress(redis.exceptions.NoPermissionError):
            line.connection.send_command("CLIENT", "ID")
            return int(line.connection.read_response())
        return None

    def _on_wait_over(self, line: Line) -> bool:
        with self._redis():
            self._read_wait(line)
        return self.deliver()

    def _read_wait(self, line: Line) -> None:
        found = line.read()
        if found:
            self._hungry = True
        if found and not isinstance(line, Bell):
            key, raw = found
            queue = self._waits_for[key.decode()]
            self._arrive(queue, key.decode(), raw, 0, 0.0)
            self.channel.served(queue)

    def _end_wait(self) -> None:
        """Have a wait that takes end at once, with what it may have taken."""
        line = self._wait
        if line is not None and line.busy and self._waits_as is not None and not isinstance(line, Bell):
            with suppress(*UNAVAILABLE), self.channel.conn_or_acquire() as client:
                client.client_unblock(self._waits_as)
                self._read_wait(line)

    # -- connections

    def _connection(self, **settings: Any) -> Any:
        pool = self.channel.pool
        return pool.connection_class(**{**pool.connection_kwargs, **settings})

    def _watch(self, line: Line) -> None:
        line.connection.connect()
        self.channel.poller.watch(self.channel, line)

    def _drop(self, line: Line) -> None:
        self.channel.poller.unwatch(line)
        with suppress(*UNAVAILABLE):
            line.connection.disconnect()
        line.sent_at = None
        if line is self._line:
            self._line = None
            self._acks_failed()
            if self._asked and self.holder is not None:
                self.holder.doubt()  # it may hold what it has not heard of
        elif line is self._wait:
            self._wait = None

    def _acks_failed(self) -> None:
        if self._acks and self.holder is not None:
            self.holder.not_acked(self._acks)
        self._acks = []

    def _check_overdue(self) -> None:
        now = monotonic()
        patience = self.channel.socket_timeout or WAIT_SECONDS
        blocks = 0 if isinstance(self._wait, Bell) else WAIT_SECONDS
        for line, most in ((self._line, patience), (self._wait, blocks + patience)):
            # Unread is not unanswered: under `solo` a task keeps the event loop for as long as it runs.
            if line is not None and line.waits_since(now) > most and not line.connection.can_read(timeout=0):
                raise redis.TimeoutError("Redis owes an answer for too long")

    @contextmanager
    def _redis(self) -> Iterator[None]:
        """Drop all connections at any failure of Redis; they are made anew when the keeper reaches it."""
        try:
            yield
        except UNAVAILABLE as exc:
            self.drop()
            if self.holder is not None:
                self.holder.doubt()  # whoever answers next may have lost what this one knew
            # While a worker starts nobody tends anything yet: Celery begins anew.
            if not self.channel.poller.endures or self.channel.poller.keeper is None:
                raise
            self._wait_out(exc)

    def _wait_out(self, exc: Exception) -> None:
        self._failed_at = monotonic()
        self._go_on_at = self._failed_at if is_away(exc) else self._failed_at + RETRY_INTERVAL
        self.channel.poller.keeper.probe()
        if repr(exc) != self._said:
            goes_on = "Redis answers" if is_away(exc) else "that is mended"
            why = self.channel.poller.keeper.explained(exc)
            logger.warning("Taking messages stopped: %s. It goes on as soon as %s", why, goes_on)
        self._said = repr(exc)
        if isinstance(exc, redis.ResponseError):
            self.channel.forget_connections()  # the master may be another one by now

    def _held_off(self) -> bool:
        """Whether Redis has not answered the keeper since the last failure, or refused something just now."""
        keeper = self.channel.poller.keeper
        if not self.channel.poller.endures or keeper is None:
            return False
        return keeper.contact_at < self._failed_at or monotonic() < self._go_on_at

    def drop(self) -> None:
        """Drop all connections."""
        for line in (self._line, self._wait):
            if line is not None:
                self._drop(line)
        self._acks_failed()  # also of a take whose connection was never made
        self._hungry = True

    def close(self) -> None:
        """Drop all connections, and give back what was not delivered."""
        if self.channel.no_ack_queues and self._line is not None and self._line.busy:
            with suppress(*UNAVAILABLE):  # it may bring what no owner holds
                self._read_take(self._line)
        self._end_wait()
        self._leave()
        self.drop()
        while self._arrived:
            self._return(*self._arrived.pop())
