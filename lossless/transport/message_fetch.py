"""The fetch of messages from the queues of one channel, without blocking the event loop.

One connection runs the TAKE script. It acknowledges settled messages, and moves up to as many messages as the prefetch
limit allows from the queues, in fair turn and by priority, into the owner's hash, all in one round trip. Beyond those
that can begin at once it takes only messages that no idle owner waits for, and only while so many are left that no
other owner will be idle before they begin here. They go to the arrival buffer (arrival_buffer.py).

A take that finds too little has the owner noted as idle, and the wait (idle_workers.py) hears when a message arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any, Protocol

import redis

from lossless.transport.arrival_buffer import ArrivalBuffer, DeliveringChannel
from lossless.transport.celery_worker_state import count_spare_processes
from lossless.transport.event_loop_poller import ConnectionMaker, ConnectionPoller, PolledConnection
from lossless.transport.idle_workers import LOOK_AGAIN, WAIT_SECONDS, IdleWait, ServedChannel
from lossless.transport.inflight_messages import MessageHolder
from lossless.transport.queue_backoff import ANY_NUMBER, QueueBackoff
from lossless.transport.redis_outage import UNAVAILABLE, OutageProbe, RedisOutage
from lossless.transport.script_hook import HookedScripts

#: Unsettled moves (messages to be delayed or put back) beyond which nothing more is taken.
MOST_UNSETTLED = 1000

#: Most messages that one call sets aside (message_gates.py): keeps it to a millisecond or two.
MOST_ASIDE = 500
#: Seconds between two counts of the other owners, and what stands for their number before.
COUNT_OTHERS_EVERY = 1.0
NOT_COUNTED = -1
#: The first part of a take's answer if there is more to set aside.
MORE_ASIDE = 2


class FetchLoop(ConnectionPoller, Protocol):
    """The part of the poller that the fetcher uses."""

    #: Whether an event loop polls.
    waits_out_outages: bool

    @property
    def outage_keeper(self) -> OutageProbe | None:
        """The keeper with which outages of Redis are waited out; None: they are raised."""


class FetchLimits(Protocol):
    """The part of the prefetch limit that the fetcher uses."""

    def credit(self, limit: int, arrived: int) -> int:
        """Return how many more messages may be taken."""

    @property
    def at_work(self) -> bool:
        """Return whether a delivered message is not settled."""


class ConsumingChannel(DeliveringChannel, ServedChannel, Protocol):
    """The part of the channel that the fetcher uses."""

    qos: FetchLimits
    hooked_scripts: HookedScripts
    priority_steps: list[int]
    queue_order_strategy: str
    take_limit: int
    socket_timeout: float | None

    @property
    def poller(self) -> FetchLoop:
        """The poller of its connections."""

    def queues_in_turn(self) -> list[str]:
        """Return the consumed queues, the one to serve first in front."""

    def list_key(self, queue: str, step: int) -> str:
        """Return the key of the list of a queue's priority step."""

    def bare_client(self) -> redis.Redis:
        """Return a client that adds no key prefix."""

    def forget_connections(self) -> None:
        """Close idle connections: the master may be another one by now."""


class MessageFetcher:
    """The fetcher of one channel.

    Parameters:
        channel: the channel.
    """

    def __init__(self, channel: ConsumingChannel) -> None:
        self.channel = channel
        self._backoff = QueueBackoff()
        self.arrivals = ArrivalBuffer(channel, self._backoff)
        self._lines = ConnectionMaker(channel)
        self._line: PolledConnection | None = None
        self._idling = IdleWait(channel, self._lines, self.arrivals, self._on_wait_over)
        self._outage = RedisOutage("Taking messages")
        #: The list keys of each queue consumed from, highest priority first.
        self._lists_kept: dict[str, list[str]] = {}
        #: Whether the last take left no free process: the owner is noted as idle accordingly.
        self._saturated = False
        #: How many messages may wait here for a process, by what the last take left to others; or `ANY_NUMBER`.
        self._allowed_ahead = 0
        #: How many other owners there are, and when they were counted.
        self._others = NOT_COUNTED
        self._counted_at = 0.0
        #: Whether Redis may have the owner noted as idle.
        self._noted = True
        #: Seconds by which the server's clock is ahead of this host's, as of the last take.
        self._ahead = 0.0
        self._hungry = True
        self._looked_at = 0.0
        self._known = False
        # of the take in flight
        self._acks: list[str] = []
        self._asked = 0
        self._asked_at = 0.0
        self._free_asked = 0
        self._first = 0
        self._lists: list[tuple[str, str]] = []

    def now(self) -> float:
        """Return the server's time (Unix): the clocks of workers need not agree."""
        return time() + self._ahead

    @property
    def holder(self) -> MessageHolder | None:
        """The channel's owner, None while all its consumers need no acknowledgement."""
        return self.channel.holder

    # -- one turn

    def turn(self) -> None:
        """Deliver the messages that have arrived, and send the next take or wait if it is time."""
        self.arrivals.deliver()
        with self._redis():
            if self._outage.lasts(self.channel.poller.outage_keeper):
                return
            self._check_overdue()
            if self.holder is not None and self.holder.needs_comparison:
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
        free, waiting = self._count_free(credit)
        self._hungry = self._hungry or self._is_time(free)
        most = self._count_wanted(credit, free, waiting) if self._hungry else 0
        # Noted before anything that may fail: `_acks_failed` gives them back.
        self._acks = holder.acks_for_take() if holder is not None else []
        if most and holder is not None:
            self._idling.listen(holder, self._looked_at)
        if most or self._acks:
            self._send_take(most, free, waiting)
        elif credit and holder is None:
            lists = {key: queue for queue, key in self._lists_of(self.channel.queues_in_turn())}
            self._hungry = self._idling.wait(lists)

    def _is_time(self, free: int) -> bool:
        """Return whether to take without a ring; ``free``: how many messages could begin at once."""
        now = monotonic()
        over = self._backoff.over(self.channel.active_queues, now)
        changed = self.arrivals.take_backoff_change()
        return over or changed or now - self._looked_at > LOOK_AGAIN or bool(self._saturated and free)

    def _may_take(self) -> bool:
        return bool(self.channel.active_queues) and (self.holder is None or self.holder.backlog <= MOST_UNSETTLED)

    def _limit(self) -> int:
        # Without an event loop one, as kombu takes: its callers may stop after any.
        return self.channel.take_limit if self.channel.poller.waits_out_outages else 1

    def _count_free(self, credit: int) -> tuple[int, int]:
        """Return how many of ``credit`` messages could begin at once, and how many wait for a process already."""
        spare = count_spare_processes()
        if spare is None:  # no worker: a consumer that handles one message after the other
            return min(credit, max(0, (0 if self.channel.qos.at_work else 1) - len(self.arrivals))), ANY_NUMBER
        spare -= len(self.arrivals)
        return min(credit, max(0, spare)), max(0, -spare)

    def _count_wanted(self, credit: int, free: int, waiting: int) -> int:
        """Return how many of ``credit`` messages to ask for: those that can begin, and those that may wait here."""
        if ANY_NUMBER in (waiting, self._allowed_ahead):
            return credit
        return min(credit, free + max(0, self._allowed_ahead - waiting))

    # -- the take

    def _send_take(self, most: int, free: int, waiting: int) -> None:
        if most:
            self._free_asked = free
            self._hungry = False  # whatever rings from now on may have come after the take looked
        keys, args = self._take(self.channel.queues_in_turn(), most, free, waiting, waits=self._idling.listens)
        args += self.holder.with_steps(self._acks) if self.holder is not None else [0]
        take = self.channel.hooked_scripts.take
        command = ("EVALSHA", take.sha) if self._known else ("EVAL", take.text)
        if self._line is None:
            self._line = self._lines.make(PolledConnection, self._on_taken)
            self._lines.open(self._line)
        self._line.send(*command, len(keys), *keys, *args)

    def _take(
        self, queues: list[str], most: int, free: int, waiting: int, *, waits: bool
    ) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of a TAKE, and note the request."""
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
        numbers = ",".join(str(self._backoff.limit(queue, monotonic())) for queue in queues)
        gates = (channel.keys.gates, channel.keys.aside, MOST_ASIDE)
        noted, self._noted = int(self._noted), self._noted or bool(most)  # if the answer is lost, it may be
        # Who believes to be alone counts at each take: another worker may have started since.
        if self._others == 0 or self._asked_at - self._counted_at > COUNT_OTHERS_EVERY:
            self._others = NOT_COUNTED
        limits = [free, owner, numbers, *gates, noted, channel.keys.owners, self._others, waiting]
        return keys, [epoch, self._first, most, len(queues), in_turn, no_ack, *limits]

    def _lists_of(self, queues: list[str]) -> list[tuple[str, str]]:
        """Return (queue, list key), highest priority first.

        The cache is by queue, never by their order: a fair turn produces every permutation of them.
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
            raise RuntimeError("basic_get cannot be used on a channel that consumes: use another channel")
        while not len(self.arrivals):
            if holder.needs_comparison:
                holder.compare()
            try:
                keys, args = self._take([queue], 1, 1, ANY_NUMBER, waits=False)
                alive, now, _, _, _, _, *taken = holder.run(self.channel.hooked_scripts.take, keys, [*args, 0])
            except UNAVAILABLE:
                holder.require_comparison()
                raise
            if not alive:
                holder.require_comparison()
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
            alive, now, lengths, refused, others, allowed_ahead, *taken = line.read()
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
            holder.require_comparison()
            return
        if self._asked:
            self._hungry = self._hungry or len(taken) == 3 * self._asked or alive == MORE_ASIDE
            self._saturated = len(taken) // 3 >= self._free_asked
            self._note_others(others)
            self._allowed_ahead = allowed_ahead
            self._noted = len(taken) < 3 * self._asked and alive != MORE_ASIDE
            self._looked_at = monotonic()
            self._note_lengths(lengths)
            self._note(taken, float(now))

    def _note_others(self, count: int) -> None:
        if self._others == NOT_COUNTED:
            self._others, self._counted_at = count, self._asked_at

    def _note_lengths(self, lengths: bytes) -> None:
        # The lists of the highest priority come first, one a queue.
        for (queue, _), length in zip(self._lists, lengths.split(b",")[:-1], strict=False):
            if int(length) >= 0:
                self._backoff.note_length(queue, int(length))

    def _note(self, taken: list[Any], now: float) -> None:
        self._ahead = now - time()
        number = self._first
        last_queue = None
        for index, raw, found in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
            last_queue, key = self._lists[index]
            looked = (self._asked_at, found.decode("latin-1")) if self.channel.hooked_scripts.looks else None
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
        """Drop the connection; the answer to a take in flight is lost."""
        line, self._line = self._line, None
        if line is not None:
            self._lines.close(line)
            if self._asked and self.holder is not None:
                self.holder.require_comparison()  # it may hold messages that it does not know
        self._acks_failed()  # also of a take whose connection was never made

    def _acks_failed(self) -> None:
        if self._acks and self.holder is not None:
            self.holder.not_acked(self._acks)
        self._acks = []

    def _check_overdue(self) -> None:
        now, patience = monotonic(), self.channel.socket_timeout or WAIT_SECONDS
        if (self._line is not None and self._line.overdue(now, patience)) or self._idling.overdue(now, patience):
            raise redis.TimeoutError("Redis does not answer")

    @contextmanager
    def _redis(self) -> Iterator[None]:
        """Drop all connections at any failure of Redis; they are made anew when the keeper reaches it."""
        try:
            yield
        except UNAVAILABLE as exc:
            self._drop()
            if self.holder is not None:
                self.holder.require_comparison()  # the next server may have lost the last writes
            # While a worker starts there is no keeper yet: Celery begins anew.
            keeper = self.channel.poller.outage_keeper
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
        """Remove the owner from the idle ones; if Redis does not answer, it is forgotten after a while anyway."""
        if self.holder is None or not self._idling.listens or self._outage.lasts(self.channel.poller.outage_keeper):
            return
        with suppress(*UNAVAILABLE), self.channel.bare_client().pipeline(transaction=False) as pipe:
            for queue in self._lists_kept:
                pipe.zrem(self.channel.keys.idle(queue), self.holder.owner)
            pipe.execute()

    def close(self) -> None:
        """Drop all connections, and give back undelivered messages."""
        if self.channel.no_ack_queues and self._line is not None and self._line.busy:
            with suppress(*UNAVAILABLE):  # it may bring messages that no owner holds
                self._read_take(self._line)
        self._idling.end()
        self._leave()
        self._drop()
        self.arrivals.return_all()
