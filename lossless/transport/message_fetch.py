"""Taking messages from the queues of one channel, without blocking the event loop.

One connection (the take line) carries the TAKE script: it acknowledges what has ended, and moves up to as many
messages as the prefetch limit allows from the queues, in fair turn and by priority, into the owner's hash, all in one
trip. Beyond what can begin at once it takes only what no idle owner waits for. What it brings goes to the arrivals
(arrivals.py).

A take that finds too little has the owner noted as idle, and the wait (idling.py) hears when something has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any, Protocol

import redis

from lossless.transport.arrival_buffer import ArrivalBuffer, DeliveringChannel
from lossless.transport.celery_worker_state import free_processes
from lossless.transport.event_loop_poller import ConnectionMaker, ConnectionPoller, PolledConnection
from lossless.transport.idle_workers import LOOK_AGAIN, WAIT_SECONDS, IdleWait, ServedChannel
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.queue_backoff import QueueBackoff
from lossless.transport.redis_outage import UNAVAILABLE, OutageProbe, RedisOutage
from lossless.transport.script_hook import HookedScripts

#: Unsettled moves (messages on their way to wait, or back) beyond which nothing more is taken.
MOST_UNSETTLED = 1000

#: Most messages that one trip sets aside (gates.py): keeps one call to a millisecond or two.
MOST_ASIDE = 500
#: What a take answers first where there is more to set aside.
MORE_ASIDE = 2


class FetchLoop(ConnectionPoller, Protocol):
    """What a taker needs of the poller."""

    #: Whether an event loop polls.
    endures: bool

    @property
    def waits_with(self) -> OutageProbe | None:
        """With whom failures of Redis are waited out; None: they are raised."""


class FetchLimits(Protocol):
    """What a taker needs of the prefetch limit."""

    def credit(self, limit: int, arrived: int) -> int:
        """How many more messages may be taken."""

    @property
    def at_work(self) -> bool:
        """Whether something that was delivered is not settled."""


class ConsumingChannel(DeliveringChannel, ServedChannel, Protocol):
    """What a taker needs of the channel."""

    qos: FetchLimits
    ridden: HookedScripts
    priority_steps: list[int]
    queue_order_strategy: str
    take_limit: int
    socket_timeout: float | None

    @property
    def poller(self) -> FetchLoop:
        """What polls its connections."""

    def queues_in_turn(self) -> list[str]:
        """The queues consumed from, the one to serve first in front."""

    def list_key(self, queue: str, step: int) -> str:
        """The key of the list of a queue's priority step."""

    def bare_client(self) -> redis.Redis:
        """A client that prefixes nothing."""

    def forget_connections(self) -> None:
        """Close idle connections: the master may be another one by now."""


class MessageFetcher:
    """Takes for one channel.

    Parameters:
        channel: the channel.
    """

    def __init__(self, channel: ConsumingChannel) -> None:
        self.channel = channel
        self._yielding = QueueBackoff()
        self.arrivals = ArrivalBuffer(channel, self._yielding)
        self._lines = ConnectionMaker(channel)
        self._line: PolledConnection | None = None
        self._idling = IdleWait(channel, self._lines, self.arrivals, self._on_wait_over)
        self._outage = RedisOutage("Taking messages")
        #: The list keys of each queue consumed from, highest priority first.
        self._lists_kept: dict[str, list[str]] = {}
        #: Whether the last take left no process that could begin at once: the owner is noted as idle accordingly.
        self._saturated = False
        #: Whether Redis may have the owner noted as idle.
        self._noted = True
        #: Seconds by which the server's clock is ahead of this host's, as of the last look.
        self._ahead = 0.0
        self._hungry = True
        self._looked_at = 0.0
        self._known = False
        # of the take under way
        self._acks: list[str] = []
        self._asked = 0
        self._asked_at = 0.0
        self._free_asked = 0
        self._first = 0
        self._lists: list[tuple[str, str]] = []

    def now(self) -> float:
        """The server's time (Unix): the clocks of workers need not agree."""
        return time() + self._ahead

    @property
    def holder(self) -> MessageHolder | None:
        """The channel's owner, None while it consumes only what needs no acknowledgement."""
        return self.channel.holder

    # -- one turn

    def turn(self) -> None:
        """Deliver what has arrived, and send the next take or wait where it is time to."""
        self.arrivals.deliver()
        with self._redis():
            if self._outage.lasts(self.channel.poller.waits_with):
                return
            self._check_overdue()
            if self.holder is not None and self.holder.in_doubt:
                if self._line is not None and self._line.busy:
                    self._drop_line()
                self.holder.compare()
                self._hungry = True
            self._next_command()

    def _next_command(self) -> None:
        if self._line is not None and self._line.busy:
            return
        holder = self.holder
        credit = self.channel.qos.credit(self._limit(), len(self.arrivals)) if self._may_take() else 0
        free = self._free(credit)
        self._hungry = self._hungry or self._is_time(free)
        most = credit if self._hungry else 0
        acks = holder.acks_to_ride() if holder is not None else []
        if most and holder is not None:
            self._idling.listen(holder, self._looked_at)
        if most or acks:
            self._send_take(most, free, acks)
        elif credit and holder is None:
            lists = {key: queue for queue, key in self._lists_of(self.channel.queues_in_turn())}
            self._hungry = self._idling.wait(lists)

    def _is_time(self, free: int) -> bool:
        """Whether the queues are to be looked at though nobody rang; ``free``: how many could be begun with."""
        now = monotonic()
        over = self._yielding.over(self.channel.active_queues, now)
        changed = self.arrivals.changed_turns()
        return over or changed or now - self._looked_at > LOOK_AGAIN or bool(self._saturated and free)

    def _may_take(self) -> bool:
        return bool(self.channel.active_queues) and (self.holder is None or self.holder.backlog <= MOST_UNSETTLED)

    def _limit(self) -> int:
        # Without an event loop one, as kombu takes: its callers may stop after any.
        return self.channel.take_limit if self.channel.poller.endures else 1

    def _free(self, credit: int) -> int:
        """Return how many of ``credit`` messages could be begun with at once."""
        free = free_processes()
        if free is None:  # no worker: a consumer that handles one message after the other
            free = 0 if self.channel.qos.at_work else 1
        return min(credit, max(0, free - len(self.arrivals)))

    # -- the take line

    def _send_take(self, most: int, free: int, acks: list[str]) -> None:
        self._acks = acks
        if most:
            self._free_asked = free
            self._hungry = False  # whatever rings from now on may have come after the take looked
        keys, args = self._take(self.channel.queues_in_turn(), most, free, waits=self._idling.listens)
        args += self.holder.with_steps(acks) if self.holder is not None else [0]
        take = self.channel.ridden.take
        command = ("EVALSHA", take.sha) if self._known else ("EVAL", take.text)
        if self._line is None:
            self._line = self._lines.make(PolledConnection, self._on_taken)
            self._lines.open(self._line)
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
        gates = (channel.keys.gates, channel.keys.aside, MOST_ASIDE)
        noted, self._noted = int(self._noted), self._noted or bool(most)  # if the answer is lost, it may be
        return keys, [epoch, self._first, most, len(queues), in_turn, no_ack, free, owner, numbers, *gates, noted]

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
        while not len(self.arrivals):
            if holder.in_doubt:
                holder.compare()
            try:
                keys, args = self._take([queue], 1, 1, waits=False)
                alive, now, _, _, *taken = holder.run(self.channel.ridden.take, keys, [*args, 0])
            except UNAVAILABLE:
                holder.doubt()
                raise
            if not alive:
                holder.doubt()
            elif not taken and alive != MORE_ASIDE:
                return None
            self._note(taken, float(now))
        return self.arrivals.next()

    def _on_taken(self, line: PolledConnection) -> bool:
        with self._redis():
            self._read_take(line)
        return self.arrivals.deliver()

    def _read_take(self, line: PolledConnection) -> None:
        try:
            alive, now, lie, refused, *taken = line.read()
        except redis.exceptions.NoScriptError:
            self._known = False
            self._hungry = True
            self._acks_failed()
            return
        self._known = True
        self._outage.ends()
        holder = self.holder
        if holder is not None and self._acks:
            holder.acked(self._acks, refused)
        self._acks = []
        if not alive and holder is not None:
            holder.doubt()
            return
        if self._asked:
            self._hungry = self._hungry or len(taken) == 3 * self._asked or alive == MORE_ASIDE
            self._saturated = len(taken) // 3 >= self._free_asked
            self._noted = len(taken) < 3 * self._asked and alive != MORE_ASIDE
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
            looked = (self._asked_at, found.decode("latin-1")) if self.channel.ridden.looks else None
            self.arrivals.come(last_queue, key, raw, number, now, looked)
            number += 1
        if last_queue is not None:
            self.channel.served(last_queue)

    def _on_wait_over(self, _: PolledConnection) -> bool:
        with self._redis():
            self._hungry = self._idling.read() or self._hungry
        return self.arrivals.deliver()

    # -- connections

    def _drop_line(self) -> None:
        """Drop the take line; the acknowledgements that ride on it, and what it may bring, are not heard of."""
        line, self._line = self._line, None
        if line is not None:
            self._lines.close(line)
            if self._asked and self.holder is not None:
                self.holder.doubt()  # it may hold what it has not heard of
        self._acks_failed()  # also of a take whose connection was never made

    def _acks_failed(self) -> None:
        if self._acks and self.holder is not None:
            self.holder.not_acked(self._acks)
        self._acks = []

    def _check_overdue(self) -> None:
        now, patience = monotonic(), self.channel.socket_timeout or WAIT_SECONDS
        if (self._line is not None and self._line.overdue(now, patience)) or self._idling.overdue(now, patience):
            raise redis.TimeoutError("Redis owes an answer for too long")

    @contextmanager
    def _redis(self) -> Iterator[None]:
        """Drop all connections at any failure of Redis; they are made anew when the keeper reaches it."""
        try:
            yield
        except UNAVAILABLE as exc:
            self._drop()
            if self.holder is not None:
                self.holder.doubt()  # whoever answers next may have lost what this one knew
            # While a worker starts nobody tends anything yet: Celery begins anew.
            keeper = self.channel.poller.waits_with
            if keeper is None:
                raise
            self._outage.begins(exc, keeper)
            if isinstance(exc, redis.ResponseError):
                self.channel.forget_connections()  # the master may be another one by now

    def _drop(self) -> None:
        """Drop all connections."""
        self._drop_line()
        self._idling.drop()
        self._hungry = True

    def _leave(self) -> None:
        """Be idle no longer; where Redis does not answer, an owner that does not come is forgotten anyway."""
        if self.holder is None or not self._idling.listens or self._outage.lasts(self.channel.poller.waits_with):
            return
        with suppress(*UNAVAILABLE), self.channel.bare_client().pipeline(transaction=False) as pipe:
            for queue in self._lists_kept:
                pipe.zrem(self.channel.keys.idle(queue), self.holder.owner)
            pipe.execute()

    def close(self) -> None:
        """Drop all connections, and give back what was not delivered."""
        if self.channel.no_ack_queues and self._line is not None and self._line.busy:
            with suppress(*UNAVAILABLE):  # it may bring what no owner holds
                self._read_take(self._line)
        self._idling.end()
        self._leave()
        self._drop()
        self.arrivals.return_all()
