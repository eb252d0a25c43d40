"""What may be handed out now on one partition, given the order asked for and what is in flight (pure).

A lane is what must run one after another: the messages of one key, a whole partition, or, where only a
sequence of handlers is asked for, one message. A lane has one delivery, or one batch of its first deliveries,
in flight at a time.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from bridge.ledger.fates import Fate

Order = Literal["none", "key", "partition"]


class Group(NamedTuple):
    """Deliveries of one handler to hand out together, in ascending order of their offsets."""

    handler: str
    offsets: list[int]


class Doomed(NamedTuple):
    """Deliveries that will not run, as an earlier handler of their messages ended so: mark them `fate`."""

    handler: str
    offsets: list[int]
    fate: Fate


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


class Lanes:
    """The waiting and the running of one handler, or of one sequence of handlers, on one partition.

    Handlers that are no sequence are independent of each other: each has Lanes of its own. In a sequence, a
    lane's messages pass all handlers before its next messages begin.

    Args:
        order: "none", "key" (a message without a key is alone in its lane) or "partition".
        handlers: one handler, or several in the order in which they run for each message.
        batches: for each handler, the most deliveries in a group.
    """

    def __init__(self, order: Order, handlers: Sequence[str], batches: Sequence[int]) -> None:
        if not handlers or len(handlers) != len(batches) or min(batches) < 1:
            raise ValueError(f"{len(handlers)} handlers need as many batch sizes from 1 on, not {list(batches)}.")
        self._order = order
        self.handlers = tuple(handlers)
        self._batches = tuple(batches)
        self._last = len(handlers) - 1
        self._ends = {Fate.DONE, Fate.DEAD, Fate.DISCARDED, Fate.GAP}
        self._laneless = order == "none" and not self._last
        if self._laneless:
            self._ends.add(Fate.PARKED)
        self._lanes: dict[bytes | None, _Lane] = {}
        self._lane_of: dict[int, _Lane] = {}
        self._stages: dict[int, int] = {}
        """Which handler comes next, for messages that are past the first."""
        self._ready: deque[_Lane] = deque()
        """Lanes with something that may go out, or that had it when they were put here."""
        self._plain: deque[int] = deque()
        """Everything that waits, where there are no lanes at all."""
        self._in_lanes = 0
        self._out = 0

    @property
    def waiting(self) -> int:
        """Messages taken in and not handed out."""
        return len(self._plain) + self._in_lanes

    @property
    def in_flight(self) -> int:
        """Messages handed out or parked that hold a lane; those without lanes are counted by Offsets."""
        return self._out

    @property
    def held(self) -> int:
        """Messages that wait behind others of their lane."""
        return self._in_lanes - sum(lane.head(self._in_lanes) for lane in self._ready)

    def add(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes] | None = None
    ) -> list[Doomed]:
        """Take in messages, in ascending order, as they come from Kafka; return deliveries to mark as dead
        with others.

        `fates` has, for each handler, the ledger's fates of `offsets`, one byte each; none means that all are
        open. What has ended is left out, what is handed or parked holds its lane. Messages that are known
        already are left out.
        """
        if fates is not None and any(map(any, fates)):
            return self._add_some(offsets, keys, fates)
        if self._laneless:
            self._plain.extend(offsets)
            return []
        for offset, key in zip(offsets, keys, strict=True):
            self._wait(offset, key)
        return []

    def take(self, room: int | None = None) -> list[Group]:
        """Return what may be handed out now, at most `room` deliveries, and count it as in flight.

        Groups are as large as what has come allows, up to the batch size: nothing waits to fill one.
        """
        room = self.waiting if room is None else min(room, self.waiting)
        if self._laneless:
            return self._take_plain(room)
        groups: list[Group] = []
        begun: list[list[int]] = [[] for _ in self.handlers]
        while room > 0 and self._ready:
            lane = self._ready.popleft()
            stage = self._stages.get(lane.waiting[0], 0) if self._stages and lane.waiting else 0
            taken = self._turn(lane, stage, min(room, self._batches[stage] - len(begun[stage])))
            room -= len(taken)
            begun[stage] += taken
            if len(begun[stage]) >= self._batches[stage]:
                groups.append(Group(self.handlers[stage], sorted(begun[stage])))
                begun[stage] = []
        groups += [Group(h, sorted(some)) for h, some in zip(self.handlers, begun, strict=True) if some]
        return groups

    def settle(self, handler: str, offsets: Iterable[int], fate: Fate) -> list[Doomed]:
        """Note how deliveries ended; return deliveries of later handlers that must be marked with the same
        fate.

        A fate that does not end a delivery (handed; parked, where an order or a sequence is asked for)
        changes nothing. Offsets that are not known here are left out.
        """
        if not self._lane_of:
            return []
        stage = self.handlers.index(handler)
        known = [o for o in offsets if o in self._lane_of and self._stages.get(o, 0) == stage]
        if fate in self._ends:
            for offset in known:
                self._end(offset, stage, passed=fate in (Fate.DONE, Fate.GAP))
            if fate in (Fate.DEAD, Fate.DISCARDED) and known:
                return [Doomed(later, sorted(known), fate) for later in self.handlers[stage + 1 :]]
        elif fate is Fate.PARKED:
            for offset in known:
                self._park(offset)
        return []

    def give_back(self, handler: str, offsets: Sequence[int], keys: Sequence[bytes | None]) -> None:
        """Take back deliveries that were not handed out, or are open again: they keep their place."""
        if self._laneless:
            self._plain.extendleft(reversed(offsets))
            return
        for offset, key in zip(offsets, keys, strict=True):
            lane = self._lane_of.get(offset)
            if lane is None:
                self._wait(offset, key)
            elif offset in lane.out:
                self._leave(lane, offset)
                lane.returned.append(offset)
                self._rest(lane)

    def _add_some(self, offsets: Sequence[int], keys: Sequence[bytes | None], fates: Sequence[bytes]) -> list[Doomed]:
        doomed = []
        for offset, key, *known in zip(offsets, keys, *fates, strict=True):
            stage = next((at for at, fate in enumerate(known) if fate not in (Fate.DONE, Fate.GAP)), None)
            if stage is None:
                continue
            fate = Fate(known[stage])
            if fate in self._ends:
                later = zip(self.handlers[stage + 1 :], known[stage + 1 :], strict=True)
                doomed += [Doomed(name, [offset], fate) for name, at in later if at == Fate.OPEN]
            elif self._laneless:
                if fate is Fate.OPEN:
                    self._plain.append(offset)
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
        self._in_lanes += 1
        if not lane.queued and not lane.out:
            self._rest(lane)

    def _hold(self, offset: int, key: bytes | None, fate: Fate) -> None:
        lane = self._lane_of[offset] = self._lane(key)
        if fate is Fate.PARKED:
            lane.parked.append(offset)
        else:
            lane.out.add(offset)
        self._out += 1

    def _turn(self, lane: _Lane, stage: int, most: int) -> list[int]:
        """Take up to `most` from the head of the lane, as far as the same handler is next for them."""
        lane.queued = False
        most = lane.head(most)
        if self._stages:
            ahead = islice(lane.waiting, most)
            most = next((n for n, offset in enumerate(ahead) if self._stages.get(offset, 0) != stage), most)
        taken = [lane.waiting.popleft() for _ in range(most)]
        lane.out.update(taken)
        self._out += most
        self._in_lanes -= most
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
            self._out += 1
            self._rest(lane)

    def _leave(self, lane: _Lane, offset: int) -> None:
        """Take a message from wherever in its lane it is."""
        if offset in lane.out:
            lane.out.remove(offset)
            self._out -= 1
        elif offset in lane.parked:
            lane.parked.remove(offset)
            self._out -= 1
        elif offset in lane.returned:
            lane.returned.remove(offset)
        else:  # waiting: another bridge handed it out
            lane.waiting.remove(offset)
            self._in_lanes -= 1

    def _rest(self, lane: _Lane) -> None:
        """When nothing of it is out, make a lane ready if something may go, forget it if nothing is left."""
        if lane.out:
            return
        if lane.returned:
            self._in_lanes += len(lane.returned)
            lane.waiting = deque(sorted([*lane.returned, *lane.waiting]))
            lane.returned = []
        if lane.head(1):
            if not lane.queued:
                lane.queued = True
                self._ready.append(lane)
        elif not lane.waiting and not lane.parked and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _take_plain(self, room: int) -> list[Group]:
        groups = []
        while room > 0:
            size = min(room, self._batches[0])
            # Sorted, because what was given back stands before what came earlier.
            groups.append(Group(self.handlers[0], sorted(self._plain.popleft() for _ in range(size))))
            room -= size
        return groups
