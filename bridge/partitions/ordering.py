"""The order in which deliveries of a partition may be handed out: none, by key, by partition, or in a sequence of
handlers (pure). A lane is what must run one after another: the messages of one key, a whole partition, or one
message of a sequence. A lane has one delivery, or one batch of its first deliveries, in flight at a time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from bridge.ledger.fate_rules import Fate

#: Bytes of keys, values and headers that one message carries at most, if it carries more than one delivery.
MESSAGE_BYTES: Final = 1_000_000

Order = Literal["none", "key", "partition"]


class DeliveryGroup(NamedTuple):
    """Deliveries of one handler to hand out together, in ascending order of their offsets; and why so many, if nobody
    has said how many.
    """

    handler: str
    offsets: list[int]
    why: str = ""


class SkippedDeliveries(NamedTuple):
    """Deliveries that will not run, as an earlier handler of their messages ended so: mark them `fate`."""

    handler: str
    offsets: list[int]
    fate: Fate


@dataclass(slots=True)
class Portion:
    """How much of one handler's may be taken now, from all partitions together.

    Attributes:
        size: most deliveries of a group.
        alone: the same for those that no two processes could share, as one runs after another.
        room: how many groups more; `None`: any.
        why: why so many, for whoever looks at the message.
    """

    size: int
    alone: int
    room: int | None = None
    why: str = ""

    @property
    def spent(self) -> bool:
        """Whether nothing more may be taken."""
        return self.room is not None and self.room <= 0

    def spend(self) -> None:
        """A group more is taken."""
        if self.room is not None:
            self.room -= 1


#: By handler.
Portions = Mapping[str, Portion]


class LongestKeyQueue(NamedTuple):
    """The key of which most deliveries wait.

    Attributes:
        first: the offset of the first that waits.
        waiting: how many of its deliveries wait.
    """

    key: bytes | None
    first: int
    waiting: int


class DeliveryQueue(Protocol):
    """The waiting messages of one handler, or of one sequence of handlers, on one partition.

    Handlers that are no sequence are independent of each other: each has turns of its own.
    """

    @property
    def handlers(self) -> Sequence[str]:
        """One handler, or several in the order in which they run for each message."""

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return the key of which most deliveries wait; `None` if keys are not kept apart, or nothing of any waits."""

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in messages, in ascending order, as they come from Kafka.

        Parameters:
            fates: for each handler, the ledger's fates of `offsets`, one byte each; `None` means that all are open.
                What has ended is left out, what is handed or parked holds its lane.

        Returns:
            deliveries to mark as dead with others.
        """

    @property
    def ready(self) -> int:
        """Those of them that may go out now, and that several processes could share."""

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """Return what may be handed out now, and count it as in flight.

        Groups are as large as what has come allows, up to the batch size: nothing waits to fill one.

        Parameters:
            portions: of handlers of which not all may be taken, or whose batch size was not given.
        """

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Note how deliveries ended; return deliveries of later handlers that must be marked with the same fate.

        A fate that does not end a delivery changes nothing. Offsets that are not known here are left out.
        """

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they keep their place."""


class UnorderedQueue:
    """The waiting messages of one handler, none of which waits for another (bridge.partitions.ordering.DeliveryQueue).

    Parameters:
        batch: the most deliveries in a group.
    """

    def __init__(self, handler: str, batch: int) -> None:
        self.handlers = (handler,)
        self._batch = batch
        self._waiting: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""
        return len(self._waiting)

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return `None`: there are no keys here."""
        return None

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in what is open."""
        if fates is not None and any(fates[0]):
            offsets = [offset for offset, fate in zip(offsets, fates[0], strict=True) if fate == Fate.OPEN]
        self._waiting.extend(offsets)
        return []

    @property
    def ready(self) -> int:
        """All of them."""
        return len(self._waiting)

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """All that waits, as groups up to the batch size, as far as there is room."""
        handler = self.handlers[0]
        portion = portions.get(handler) or Portion(self._batch, self._batch)
        groups = []
        while self._waiting and not portion.spent:
            portion.spend()
            size = min(len(self._waiting), portion.size)
            # Sorted, because what was given back stands before what came earlier.
            groups.append(DeliveryGroup(handler, sorted(self._waiting.popleft() for _ in range(size)), portion.why))
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Nothing waits for what was handed out."""
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they go out first."""
        self._waiting.extendleft(reversed(offsets))


#: Fates that end a delivery for those behind it: what is parked holds its lane.
_ENDS = frozenset({Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP})


def make_delivery_queue(order: Order, handlers: Sequence[str], batches: Sequence[int]) -> DeliveryQueue:
    """What may go out when, for one handler or one sequence of handlers.

    Parameters:
        order: "none", "key" (a message without a key is free of all others) or "partition".
        handlers: one, or several in the order in which they run for each message.
        batches: for each handler, the most deliveries in a group.

    Raises:
        ValueError: not each handler has a batch size from 1 on.
    """
    if not handlers or len(handlers) != len(batches) or min(batches) < 1:
        raise ValueError(f"{len(handlers)} handlers need as many batch sizes from 1 on, not {list(batches)}.")
    if order == "none" and len(handlers) == 1:
        return UnorderedQueue(handlers[0], batches[0])
    return OrderedQueue(order, handlers, batches)


class _Lane:
    __slots__ = ("key", "out", "parked", "queued", "returned", "waiting")

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.waiting: deque[int] = deque()
        self.out: set[int] = set()
        self.returned: list[int] = []
        """Was out and is to go out again (to the next handler, or given back) when nothing is out."""
        self.parked: list[int] = []
        """Parked: they hold back the messages after them, but not the ones before."""
        self.queued = False

    def head(self, most: int) -> int:
        """Return how many of the first `most` waiting messages may go out now, as far as parked ones let."""
        if self.out:
            return 0
        size = min(most, len(self.waiting))
        if self.parked and size:
            first = min(self.parked)
            return next((n for n, offset in enumerate(islice(self.waiting, size)) if offset > first), size)
        return size


class OrderedQueue:
    """The waiting and the running of one handler, or of one sequence of handlers
    (bridge.partitions.ordering.DeliveryQueue).

    In a sequence, a lane's messages pass all handlers before its next messages begin.
    """

    def __init__(self, order: Order, handlers: Sequence[str], batches: Sequence[int]) -> None:
        self._order = order
        self.handlers = tuple(handlers)
        self._batches = tuple(batches)
        self._last = len(handlers) - 1
        self._lanes: dict[bytes | None, _Lane] = {}
        self._lane_of: dict[int, _Lane] = {}
        self._stages: dict[int, int] = {}
        """Which handler comes next, for messages that are past the first."""
        self._ready: deque[_Lane] = deque()
        """Lanes with something that may go out, or that had it when they were put here."""
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""
        return self._waiting

    def longest_lane(self) -> LongestKeyQueue | None:
        """Return the key of which most deliveries wait; of a whole partition in order there is none to tell."""
        if self._order != "key":
            return None
        longest = max(self._lanes.values(), key=lambda lane: len(lane.waiting), default=None)
        if longest is None or not longest.waiting:
            return None
        return LongestKeyQueue(longest.key, longest.waiting[0], len(longest.waiting))

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[SkippedDeliveries]:
        """Take in messages; those that are known already are left out."""
        if fates is not None and any(map(any, fates)):
            return self._add_some(offsets, keys, fates)
        for offset, key in zip(offsets, keys, strict=True):
            self._wait(offset, key)
        return []

    @property
    def ready(self) -> int:
        """What waits in lanes that are free; none where all is one lane, which no two processes could share."""
        return 0 if self._order == "partition" else sum(len(lane.waiting) for lane in self._ready)

    def take(self, portions: Portions = MappingProxyType({})) -> list[DeliveryGroup]:
        """What may be handed out now, of every lane that is free, as far as there is room."""
        given = [portions.get(h) or Portion(b, b) for h, b in zip(self.handlers, self._batches, strict=True)]
        sizes = [each.alone if self._order == "partition" else each.size for each in given]
        groups: list[DeliveryGroup] = []
        begun: list[list[int]] = [[] for _ in self.handlers]
        no_room: list[_Lane] = []
        while self._ready:
            lane = self._ready.popleft()
            stage = self._stages.get(lane.waiting[0], 0) if self._stages and lane.waiting else 0
            if not begun[stage] and given[stage].spent:
                no_room.append(lane)
                continue
            taken = self._turn(lane, stage, sizes[stage] - len(begun[stage]))
            if taken and not begun[stage]:
                given[stage].spend()
            begun[stage] += taken
            if len(begun[stage]) >= sizes[stage]:
                groups.append(DeliveryGroup(self.handlers[stage], sorted(begun[stage]), given[stage].why))
                begun[stage] = []
        self._ready.extend(no_room)
        rest = zip(self.handlers, begun, given, strict=True)
        groups += [DeliveryGroup(handler, sorted(some), portion.why) for handler, some, portion in rest if some]
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[SkippedDeliveries]:
        """Note how deliveries ended; what is handed, or parked, holds its lane still."""
        if not self._lane_of:
            return []
        stage = self.handlers.index(handler)
        known = [o for o in offsets if o in self._lane_of and self._stages.get(o, 0) == stage]
        if fate in _ENDS:
            for offset in known:
                self._end(offset, stage, passed=fate in (Fate.DONE, Fate.GAP))
            if fate in (Fate.DEAD, Fate.DISCARDED) and known:
                return [SkippedDeliveries(later, sorted(known), fate) for later in self.handlers[stage + 1 :]]
        elif fate is Fate.PARKED:
            for offset in known:
                self._park(offset)
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they keep their place."""
        for offset, key in zip(offsets, keys, strict=True):
            lane = self._lane_of.get(offset)
            if lane is None:
                self._wait(offset, key)
            elif offset in lane.out:
                self._leave(lane, offset)
                lane.returned.append(offset)
                self._rest(lane)

    def _add_some(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes]
    ) -> list[SkippedDeliveries]:
        doomed = []
        for offset, key, *known in zip(offsets, keys, *fates, strict=True):
            stage = next((at for at, fate in enumerate(known) if fate not in (Fate.DONE, Fate.GAP)), None)
            if stage is None:
                continue
            fate = Fate(known[stage])
            if fate in _ENDS:
                later = zip(self.handlers[stage + 1 :], known[stage + 1 :], strict=True)
                doomed += [SkippedDeliveries(name, [offset], fate) for name, at in later if at == Fate.OPEN]
            elif offset not in self._lane_of:
                if stage:
                    self._stages[offset] = stage
                if fate is Fate.OPEN:
                    self._wait(offset, key)
                else:
                    self._hold(offset, key, fate)
        return doomed

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
        if fate is Fate.PARKED:
            lane.parked.append(offset)
        else:
            lane.out.add(offset)

    def _turn(self, lane: _Lane, stage: int, most: int) -> list[int]:
        """Take up to `most` from the head of the lane, as far as the same handler is next for them."""
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
        """Take a message from wherever in its lane it is."""
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
        """When nothing of it is out, make a lane ready if something may go, forget it if nothing is left."""
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
