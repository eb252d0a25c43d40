"""The order in which deliveries of a partition go out: none, by key, by partition, or in a sequence of handlers (pure).

A lane is a set of messages that run one after another: those of one key, those of a whole partition, or one message of
a sequence. A lane has one delivery, or one batch of its first deliveries, in flight at a time.
tasks/execution/retry_schedule.py decides which deliveries that run later must not overtake others of their lane.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from bridge.ledger.fate_rules import Fate

#: Most bytes of keys, values and headers in one message that carries more than one delivery.
MESSAGE_BYTES: Final = 1_000_000

Order = Literal["none", "key", "partition"]


class DeliveryGroup(NamedTuple):
    """The deliveries of one handler to hand out together, offsets ascending; `why` explains an automatic size."""

    handler: str
    offsets: list[int]
    why: str = ""


class SkippedDeliveries(NamedTuple):
    """The deliveries that will not run because an earlier handler of their messages ended: mark them `fate`."""

    handler: str
    offsets: list[int]
    fate: Fate


@dataclass(slots=True)
class Portion:
    """The groups of one handler that may be taken now, from all partitions together.

    Attributes:
        size: most deliveries of a group.
        alone: the same for deliveries that run one after another, which no two processes could share.
        room: groups that may still be taken; `None`: any number.
        why: reason for the size, shown with the message.
    """

    size: int
    alone: int
    room: int | None = None
    why: str = ""

    @property
    def spent(self) -> bool:
        """Return whether nothing more may be taken."""
        return self.room is not None and self.room <= 0

    def spend(self) -> None:
        """Count one more group as taken."""
        if self.room is not None:
            self.room -= 1


#: The portion of each handler.
Portions = Mapping[str, Portion]


class LongestKeyQueue(NamedTuple):
    """The key with the most waiting deliveries.

    Attributes:
        first: offset of its first waiting delivery.
        waiting: how many of its deliveries wait.
    """

    key: bytes | None
    first: int
    waiting: int


class DeliveryQueue(Protocol):
    """The waiting messages of one handler, or of one sequence of handlers, on one partition.

    Handlers outside a sequence are independent: each has a queue of its own.
    """

    @property
    def handlers(self) -> Sequence[str]:
        """Return the handler, or several in the order in which they run for each message."""

    @property
    def waiting(self) -> int:
        """Return how many messages were taken in and not handed out."""

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return the key with the most waiting deliveries; `None` without an order by key, or if nothing waits."""

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in messages in ascending order.

        Parameters:
            fates: for each handler, the ledger's fates of `offsets`, one byte each; `None` means that all are open.
                An ended delivery is left out; a handed or parked one holds its lane.

        Returns:
            deliveries to mark with the fate of an earlier handler.
        """

    @property
    def ready(self) -> int:
        """Return how many messages may go out now that several processes could share."""

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """Take what may be handed out now, and count it as in flight.

        Groups have up to the batch size: no message waits to fill one.

        Parameters:
            portions: of handlers with limited room or an automatic batch size.
        """

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Note how deliveries ended; return deliveries of later handlers that must be marked with the same fate.

        A handed delivery stays in flight. Unknown offsets are left out.
        """

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out or are open again: they keep their position."""


class UnorderedQueue:
    """The waiting messages of one handler, none of which waits for another.

    Parameters:
        batch: the most deliveries in a group.
    """

    def __init__(self, handler: str, batch: int) -> None:
        self.handlers = (handler,)
        self._batch = batch
        self._waiting: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Return how many messages were taken in and not handed out."""
        return len(self._waiting)

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return `None`: there is no order by key."""
        return None

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in the open messages."""
        if fates is not None and any(fates[0]):
            offsets = [offset for offset, fate in zip(offsets, fates[0], strict=True) if fate == Fate.OPEN]
        self._waiting.extend(offsets)
        return []

    @property
    def ready(self) -> int:
        """Return how many messages wait: all may go out."""
        return len(self._waiting)

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """Take all waiting messages as groups up to the batch size, as far as there is room."""
        handler = self.handlers[0]
        portion = portions.get(handler) or Portion(self._batch, self._batch)
        groups = []
        while self._waiting and not portion.spent:
            portion.spend()
            size = min(len(self._waiting), portion.size)
            # Sorted, because deliveries that were given back come before older ones.
            groups.append(DeliveryGroup(handler, sorted(self._waiting.popleft() for _ in range(size)), portion.why))
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Return nothing: no message waits for one that was handed out."""
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out or are open again: they go out first."""
        self._waiting.extendleft(reversed(offsets))


#: Fates that free the lane of a delivery; a parked one holds it.
_ENDS = frozenset({Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP})


def make_delivery_queue(
    order: Order, handlers: Sequence[str], batches: Sequence[int], *, holds_dead: bool = False
) -> DeliveryQueue:
    """Return the queue of one handler, or of one sequence of handlers.

    Parameters:
        order: "none", "key" (a message without a key waits for no other) or "partition".
        handlers: one, or several in the order in which they run for each message.
        batches: for each handler, the most deliveries in a group.
        holds_dead: whether a dead delivery holds those behind it in its order until it is done or discarded.

    Raises:
        ValueError: not each handler has a batch size from 1 on.
    """
    if not handlers or len(handlers) != len(batches) or min(batches) < 1:
        raise ValueError(f"{len(handlers)} handlers need as many batch sizes from 1 on, not {list(batches)}.")
    if order == "none" and len(handlers) == 1:
        return UnorderedQueue(handlers[0], batches[0])
    return OrderedQueue(order, handlers, batches, holds_dead=holds_dead)


class _Lane:
    __slots__ = ("key", "out", "parked", "queued", "returned", "waiting")

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.waiting: deque[int] = deque()
        self.out: set[int] = set()
        self.returned: list[int] = []
        """Messages that were out and go out again (to the next handler, or given back) when nothing is out."""
        self.parked: list[int] = []
        """Parked messages, and dead ones that hold: they hold back the messages after them, not those before."""
        self.queued = False

    def head(self, most: int) -> int:
        """Return how many of the first `most` waiting messages may go out now; none passes a parked one."""
        if self.out:
            return 0
        size = min(most, len(self.waiting))
        if self.parked and size:
            first = min(self.parked)
            return next((n for n, offset in enumerate(islice(self.waiting, size)) if offset > first), size)
        return size


class OrderedQueue:
    """The waiting and running messages of one handler, or of one sequence of handlers.

    In a sequence, a lane's messages pass all handlers before its next messages start.
    """

    def __init__(
        self, order: Order, handlers: Sequence[str], batches: Sequence[int], *, holds_dead: bool = False
    ) -> None:
        self._order = order
        self._held_fates = frozenset({Fate.PARKED, Fate.DEAD} if holds_dead else {Fate.PARKED})
        self._ends = _ENDS - self._held_fates
        self.handlers = tuple(handlers)
        self._batches = tuple(batches)
        self._last = len(handlers) - 1
        self._lanes: dict[bytes | None, _Lane] = {}
        self._lane_of: dict[int, _Lane] = {}
        self._stages: dict[int, int] = {}
        """The index of the next handler, for messages past the first."""
        self._ready: deque[_Lane] = deque()
        """Lanes that have something to hand out, or had when they were added."""
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Return how many messages were taken in and not handed out."""
        return self._waiting

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return the key with the most waiting deliveries; `None` without an order by key, or if nothing waits."""
        if self._order != "key":
            return None
        longest = max(self._lanes.values(), key=lambda lane: len(lane.waiting), default=None)
        if longest is None or not longest.waiting:
            return None
        return LongestKeyQueue(longest.key, longest.waiting[0], len(longest.waiting))

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in messages; known ones are left out."""
        if fates is not None and any(map(any, fates)):
            return self._add_some(offsets, keys, fates)
        for offset, key in zip(offsets, keys, strict=True):
            self._wait(offset, key)
        return []

    @property
    def ready(self) -> int:
        """Return how many messages wait in free lanes; 0 for a whole partition, which no two processes could share."""
        return 0 if self._order == "partition" else sum(len(lane.waiting) for lane in self._ready)

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """Take what may be handed out now from every free lane, as far as there is room."""
        allowed = [portions.get(h) or Portion(b, b) for h, b in zip(self.handlers, self._batches, strict=True)]
        sizes = [portion.alone if self._order == "partition" else portion.size for portion in allowed]
        groups: list[DeliveryGroup] = []
        partial: list[list[int]] = [[] for _ in self.handlers]
        no_room: list[_Lane] = []
        while self._ready:
            lane = self._ready.popleft()
            stage = self._stages.get(lane.waiting[0], 0) if self._stages and lane.waiting else 0
            if not partial[stage] and allowed[stage].spent:
                no_room.append(lane)
                continue
            taken = self._turn(lane, stage, sizes[stage] - len(partial[stage]))
            if taken and not partial[stage]:
                allowed[stage].spend()
            partial[stage] += taken
            if len(partial[stage]) >= sizes[stage]:
                groups.append(DeliveryGroup(self.handlers[stage], sorted(partial[stage]), allowed[stage].why))
                partial[stage] = []
        self._ready.extend(no_room)
        rest = zip(self.handlers, partial, allowed, strict=True)
        groups += [
            DeliveryGroup(handler, sorted(offsets), portion.why) for handler, offsets, portion in rest if offsets
        ]
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Note how deliveries ended; a handed or parked one still holds its lane."""
        if not self._lane_of:
            return []
        stage = self.handlers.index(handler)
        known = [o for o in offsets if o in self._lane_of and self._stages.get(o, 0) == stage]
        if fate in self._ends:
            for offset in known:
                self._end(offset, stage, passed=fate in (Fate.DONE, Fate.GAP))
            if fate in (Fate.DEAD, Fate.DISCARDED) and known:
                return [SkippedDeliveries(later, sorted(known), fate) for later in self.handlers[stage + 1 :]]
        elif fate in self._held_fates:
            for offset in known:
                self._park(offset)
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out or are open again: they keep their position."""
        for offset, key in zip(offsets, keys, strict=True):
            lane = self._lane_of.get(offset)
            if lane is None:
                self._wait(offset, key)
            elif offset in lane.out:
                self._leave(lane, offset)
                lane.returned.append(offset)
                self._rest(lane)

    def count_of(self, keys: Iterable[bytes]) -> int:
        """Return how many messages of these keys were taken in and not handed out."""
        return sum(len(lane.waiting) for key in keys if (lane := self._lanes.get(key)) is not None)

    def key_of(self, offset: int) -> bytes | None:
        """Return the key that a message holds; `None` if it holds none."""
        return None if (lane := self._lane_of.get(offset)) is None else lane.key

    def count_behind(self, offsets: Iterable[int]) -> int:
        """Return how many messages wait behind some of these in their order, each counted once.

        Those count too that were handed out together with one of these: they run after it.
        """
        first: dict[_Lane, int] = {}
        for offset in offsets:
            if (lane := self._lane_of.get(offset)) is not None:
                first[lane] = min(offset, first.get(lane, offset))
        return sum(
            sum(each > offset for each in (*lane.waiting, *lane.out, *lane.returned)) for lane, offset in first.items()
        )

    def _add_some(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes]
    ) -> list[SkippedDeliveries]:
        skipped = []
        for offset, key, *fates_of in zip(offsets, keys, *fates, strict=True):
            stage = next((at for at, fate in enumerate(fates_of) if fate not in (Fate.DONE, Fate.GAP)), None)
            if stage is None:
                continue
            fate = Fate(fates_of[stage])
            if fate in self._ends:
                later = zip(self.handlers[stage + 1 :], fates_of[stage + 1 :], strict=True)
                skipped += [SkippedDeliveries(name, [offset], fate) for name, at in later if at == Fate.OPEN]
            elif offset not in self._lane_of:
                if stage:
                    self._stages[offset] = stage
                if fate is Fate.OPEN:
                    self._wait(offset, key)
                else:
                    self._hold(offset, key, fate)
        return skipped

    def _lane(self, key: bytes | None) -> _Lane:
        if self._order == "partition":
            key = None
        elif key is None or self._order == "none":
            return _Lane(None)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _wait(self, offset: int, key: bytes | None) -> None:
        if offset in self._lane_of:
            return
        lane = self._lane_of[offset] = self._lane(key)
        if lane.waiting and lane.waiting[-1] > offset:
            lane.waiting = deque(sorted([*lane.waiting, offset]))
        else:
            lane.waiting.append(offset)
        self._waiting += 1
        if not lane.queued and not lane.out:
            self._rest(lane)

    def _hold(self, offset: int, key: bytes | None, fate: Fate) -> None:
        lane = self._lane_of[offset] = self._lane(key)
        if fate in self._held_fates:
            lane.parked.append(offset)
        else:
            lane.out.add(offset)

    def _turn(self, lane: _Lane, stage: int, most: int) -> list[int]:
        """Take up to `most` messages from the head of a lane that have the same handler next."""
        lane.queued = False
        most = lane.head(most)
        if self._stages:
            ahead = islice(lane.waiting, most)
            most = next((n for n, offset in enumerate(ahead) if self._stages.get(offset, 0) != stage), most)
        taken = [lane.waiting.popleft() for _ in range(most)]
        lane.out.update(taken)
        self._waiting -= most
        return taken

    def _end(self, offset: int, stage: int, passed: bool) -> None:
        lane = self._lane_of[offset]
        self._leave(lane, offset)
        if passed and stage < self._last:
            self._stages[offset] = stage + 1
            lane.returned.append(offset)
        else:
            del self._lane_of[offset]
            self._stages.pop(offset, None)
        self._rest(lane)

    def _park(self, offset: int) -> None:
        lane = self._lane_of[offset]
        if offset not in lane.parked:
            self._leave(lane, offset)
            lane.parked.append(offset)
            self._rest(lane)

    def _leave(self, lane: _Lane, offset: int) -> None:
        """Remove a message from its lane."""
        if offset in lane.out:
            lane.out.remove(offset)
        elif offset in lane.parked:
            lane.parked.remove(offset)
        elif offset in lane.returned:
            lane.returned.remove(offset)
        else:  # waiting: another bridge handed it out
            lane.waiting.remove(offset)
            self._waiting -= 1

    def _rest(self, lane: _Lane) -> None:
        """Make a lane ready if nothing is out and something may go; forget it if nothing is left."""
        if lane.out:
            return
        if lane.returned:
            self._waiting += len(lane.returned)
            lane.waiting = deque(sorted([*lane.returned, *lane.waiting]))
            lane.returned = []
        if lane.head(1):
            if not lane.queued:
                lane.queued = True
                self._ready.append(lane)
        elif not lane.waiting and not lane.parked and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
