"""Taking messages from the queues of one channel, without blocking the event loop.

One connection (the take line) carries the TAKE script: it acknowledges what has ended, and moves up to as many
messages as the prefetch limit allows from the queues, in fair turn and by priority, into the owner's hash, all in one
trip. Beyond what can begin at once it takes only what no idle owner waits for. What it brings goes to the arrivals
(arrivals.py).

A take names the set of the channel's queues (queue_set.py) and looks at those lists that are marked as ready: what it
costs does not grow with the number of queues. Every few seconds, and where the lists are few at each time, it looks at
all of them.

A take that finds too little has the owner noted as idle, and the wait (idling.py) hears when something has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, time
from typing import Any, Protocol

import redis

from lossless.transport.arrivals import Arrivals, Delivering
from lossless.transport.holding import Holder
from lossless.transport.idling import LOOK_AGAIN, WAIT_SECONDS, Idling, Served
from lossless.transport.line import Line, Lines, Polling
from lossless.transport.outages import UNAVAILABLE, Outage, Reaching
from lossless.transport.queue_set import QueueSet, queue_set
from lossless.transport.riding import Ridden
from lossless.transport.working import free_processes
from lossless.transport.yielding import ANY, Yielding

#: Unsettled moves (messages on their way to wait, or back) beyond which nothing more is taken.
MOST_UNSETTLED = 1000

#: Most messages that one trip sets aside (gates.py): keeps one call to a millisecond or two.
MOST_ASIDE = 500
#: What a take answers first where there is more to set aside, and where Redis does not know its set of queues.
GOES_ON = 2
SET_UNKNOWN = 3

#: Most lists of which each take looks at all. Of more it looks at those that are marked as ready.
FEW_LISTS = 40


class Loop(Polling, Protocol):
    """What a taker needs of the poller."""

    #: Whether an event loop polls.
    endures: bool

    @property
    def waits_with(self) -> Reaching | None:
        """With whom failures of Redis are waited out; None: they are raised."""


class Limits(Protocol):
    """What a taker needs of the prefetch limit."""

    def credit(self, limit: int, arrived: int) -> int:
        """How many more messages may be taken."""

    @property
    def at_work(self) -> bool:
        """Whether something that was delivered is not settled."""


class Consuming(Delivering, Served, Protocol):
    """What a taker needs of the channel."""

    qos: Limits
    ridden: Ridden
    priority_steps: list[int]
    queue_order_strategy: str
    take_limit: int
    socket_timeout: float | None

    @property
    def poller(self) -> Loop:
        """What polls its connections."""

    def queues_in_turn(self) -> list[str]:
        """The queues consumed from, the one to serve first in front."""

    def list_key(self, queue: str, step: int) -> str:
        """The key of the list of a queue's priority step."""

    def bare_client(self) -> redis.Redis:
        """A client that prefixes nothing."""

    def forget_connections(self) -> None:
        """Close idle connections: the master may be another one by now."""


class Taker:
    """Takes for one channel.

    Parameters:
        channel: the channel.
    """

    def __init__(self, channel: Consuming) -> None:
        self.channel = channel
        self._yielding = Yielding()
        self.arrivals = Arrivals(channel, self._yielding)
        self._lines = Lines(channel)
        self._line: Line | None = None
        self._idling = Idling(channel, self._lines, self.arrivals, self._on_wait_over)
        self._outage = Outage("Taking messages")
        #: The set of the queues consumed from, and what it was made of.
        self._set: QueueSet | None = None
        self._set_of: tuple[frozenset[str], frozenset[str]] | None = None
        #: Whether Redis has the lists of that set, and when all of them were looked at last.
        self._set_noted = False
        self._all_looked_at = 0.0
        #: The number of the queue that is served first at the next take.
        self._turn = 0
        #: Queues that Redis has as left to others, wholly or in part.
        self._left: set[str] = set()
        #: Whether the last take left no process that could begin at once: the owner is noted as idle accordingly.
        self._saturated = False
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
        self._asked_of: dict[bytes, tuple[str, str]] = {}
        self._asked_left: set[str] = set()
        self._asks_all = False

    def now(self) -> float:
        """The server's time (Unix): the clocks of workers need not agree."""
        return time() + self._ahead

    @property
    def holder(self) -> Holder | None:
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
            lists = {key: queue for queue, key in self._lists_of(self.channel.queues_in_turn()).values()}
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
        if most and self.holder is not None:
            keys, args = self._take_of_set(self.holder, most, free)
        else:
            keys, args = self._take(self.channel.queues_in_turn() if most else [], most, free)
        args += self.holder.with_steps(acks) if self.holder is not None else [0]
        take = self.channel.ridden.take
        command = ("EVALSHA", take.sha) if self._known else ("EVAL", take.text)
        if self._line is None:
            self._line = self._lines.make(Line, self._on_taken)
            self._lines.open(self._line)
        self._line.send(*command, len(keys), *keys, *args)

    def _take(self, queues: list[str], most: int, free: int) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of a TAKE from these queues' lists, and note what is asked for."""
        channel = self.channel
        no_ack = "".join("1" if queue in channel.no_ack_queues else "0" for queue in queues)
        self._asked_of, self._asks_all = self._lists_of(queues), False
        # A key in any case, that an ACL with the transport's prefix allows.
        keys = [channel.keys.taken("nobody" if self.holder is None else self.holder.owner)]
        keys += [key for _, key in self._asked_of.values()]
        return keys, self._arguments(most, free, "", no_ack, ("", "", "small", 0, len(queues)))

    def _take_of_set(self, holder: Holder, most: int, free: int) -> tuple[list[str], list[Any]]:
        """Return the keys and arguments of a TAKE from the set of all queues, and note what is asked for."""
        queues, names, now = self._set_in_use(), self.channel.keys, monotonic()
        keys = [names.taken(holder.owner), names.idle(queues.name), names.ready(queues.name)]
        keys += [names.lists_of_set(queues.name), names.queue_sets, names.sets_of_lists, names.left, names.sets_seen]
        keys += [] if self._set_noted else queues.lists
        self._asked_of = queues.queues
        self._asks_all = not self._set_noted or now - self._all_looked_at >= LOOK_AGAIN
        how = "small" if len(queues.lists) <= FEW_LISTS else "all" if self._asks_all else "ready"
        limits = {queue: self._yielding.most(queue, now) for queue in queues.numbers}
        limits = {queue: limit for queue, limit in limits.items() if limit != ANY}
        self._asked_left = set(limits)
        numbers = "".join(
            f"{queues.numbers[queue]}:{limits.get(queue, ANY)},"
            for queue in sorted(self._asked_left | self._left)
            if queue in queues.numbers
        )
        owner = holder.owner if self._idling.listens else ""
        turn = self._turn if self._serves_in_turn else 0
        place = (owner, numbers, how, turn, len(queues.numbers))
        return keys, self._arguments(most, free, queues.name, queues.no_ack, place)

    def _arguments(
        self, most: int, free: int, name: str, no_ack: str, place: tuple[str, str, str, int, int]
    ) -> list[Any]:
        channel, holder = self.channel, self.holder
        self._asked, self._asked_at = most, monotonic()
        self._first = holder.reserve(most) if holder is not None and most else 0
        epoch = "" if holder is None else holder.epoch
        owner, numbers, how, turn, size = place
        gates = (channel.keys.gates, channel.keys.aside, MOST_ASIDE)
        args = [epoch, self._first, most, name, int(self._serves_in_turn), no_ack, free, owner, numbers, *gates]
        return [*args, how, turn, size, len(channel.priority_steps), channel.keys.idle("")]

    @property
    def _serves_in_turn(self) -> bool:
        return self.channel.queue_order_strategy == "round_robin"

    def _set_in_use(self) -> QueueSet:
        """Return the set of the queues that are consumed from now."""
        channel = self.channel
        made_of = (frozenset(channel.active_queues), frozenset(channel.no_ack_queues))
        if self._set is None or made_of != self._set_of:
            self._leave_set()
            # In turn they are served from the one on that was served last, whatever their order.
            order = sorted(made_of[0]) if self._serves_in_turn else channel.queues_in_turn()
            self._set = queue_set(order, made_of[1], channel.priority_steps, channel.list_key)
            self._set_of, self._set_noted, self._turn = made_of, False, 0
        return self._set

    def _lists_of(self, queues: list[str]) -> dict[bytes, tuple[str, str]]:
        """Return queue and key of each list, by its key as Redis answers it; the highest priority first."""
        keys = ((queue, self.channel.list_key(queue, step)) for step in self.channel.priority_steps for queue in queues)
        return {key.encode(): (queue, key) for queue, key in keys}

    def take_one(self, queue: str) -> dict[str, Any] | None:
        """Take one message of a queue now, for ``basic_get``. Raises redis-py's errors."""
        holder = self.holder
        if holder is None or (self._line is not None and self._line.busy):
            raise RuntimeError("basic_get and consuming on one channel at a time")
        while not len(self.arrivals):
            if holder.in_doubt:
                holder.compare()
            try:
                keys, args = self._take([queue], 1, 1)
                alive, now, _, _, *taken = holder.run(self.channel.ridden.take, keys, [*args, 0])
            except UNAVAILABLE:
                holder.doubt()
                raise
            if not alive:
                holder.doubt()
            elif not taken and alive != GOES_ON:
                return None
            self._note(taken, float(now))
        return self.arrivals.next()

    def _on_taken(self, line: Line) -> bool:
        with self._redis():
            self._read_take(line)
        return self.arrivals.deliver()

    def _read_take(self, line: Line) -> None:
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
        if alive == SET_UNKNOWN:
            self._set_noted, self._hungry = False, True
            return
        if self._asked:
            self._set_answered()
            self._hungry = self._hungry or len(taken) == 3 * self._asked or alive == GOES_ON
            self._saturated = len(taken) // 3 >= self._free_asked
            self._looked_at = monotonic()
            self._note_lengths(lie)
            self._note(taken, float(now))

    def _set_answered(self) -> None:
        """Note that Redis has the set of queues, and what is left to others of them."""
        if self._asked_of is not (self._set.queues if self._set is not None else None):
            return
        self._set_noted, self._left = True, self._asked_left
        if self._asks_all:
            self._all_looked_at = self._asked_at

    def _note_lengths(self, lie: bytes) -> None:
        if self._set is not None and lie:
            queues = list(self._set.numbers)
            for number, _, length in (each.partition(b":") for each in lie.split(b",")[:-1]):
                self._yielding.lie(queues[int(number)], int(length))

    def _note(self, taken: list[Any], now: float) -> None:
        self._ahead = now - time()
        number = self._first
        last_queue = None
        for name, raw, found in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
            last_queue, key = self._asked_of[name]
            looked = (self._asked_at, found.decode("latin-1")) if self.channel.ridden.looks else None
            self.arrivals.come(last_queue, key, raw, number, now, looked)
            number += 1
        if last_queue is not None:
            self.channel.served(last_queue)
            if self._set is not None and last_queue in self._set.numbers:
                self._turn = (self._set.numbers[last_queue] + 1) % len(self._set.numbers)

    def _on_wait_over(self, _: Line) -> bool:
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

    def _leave_set(self) -> None:
        """Be idle no longer; where Redis does not answer, an owner that does not come is forgotten anyway."""
        if self.holder is None or self._set is None or self._outage.lasts(self.channel.poller.waits_with):
            return
        with suppress(*UNAVAILABLE):
            client: Any = self.channel.bare_client()
            client.zrem(self.channel.keys.idle(self._set.name), self.holder.owner)

    def close(self) -> None:
        """Drop all connections, and give back what was not delivered."""
        if self.channel.no_ack_queues and self._line is not None and self._line.busy:
            with suppress(*UNAVAILABLE):  # it may bring what no owner holds
                self._read_take(self._line)
        self._idling.end()
        self._leave_set()
        self._drop()
        self.arrivals.return_all()
