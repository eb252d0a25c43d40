"""The offset of a partition that is safe to commit (pure).

The bridge's own picture of the fates between the committed offset and the last one read: one byte per offset
and handler, no object per offset, so that a hundred thousand in flight are searched and compared in C. A long gap
costs nothing: it separates two stretches.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from bridge.ledger import fate_rules
from bridge.ledger.fate_rules import OVERWRITES, UNSETTLED, Fate

Commit = Literal["handoff", "completion"]

#: Longest run of offsets without a record inside one stretch.
NEAR: Final = 4_096
#: Longest run of other fates between two that are read together: half a byte each is less than another command.
NEAR_FATES: Final = 128

# A byte is (fate before) * 16 + (fate now): a run of one same byte in which the two differ.
_CHANGED = re.compile(b"([^" + b"".join(re.escape(bytes([f * 17])) for f in Fate) + rb"])\1*", re.DOTALL)


class FateChange(NamedTuple):
    """A run of offsets whose fate changed from `before` to `fate`."""

    offsets: range
    before: Fate
    fate: Fate

    @property
    def went_back(self) -> bool:
        """Return whether the ledger lost the fate, or a stuck delivery was opened: it must be handed out again."""
        return self.fate is Fate.OPEN or self.before not in OVERWRITES[self.fate]


class _OffsetStretch:
    """A stretch of offsets from `first` on without a long gap, with the fates of each handler."""

    __slots__ = ("first", "seen")

    def __init__(self, first: int, handlers: Iterable[str]) -> None:
        self.first = first
        self.seen = {handler: bytearray() for handler in handlers}

    @property
    def end(self) -> int:
        return self.first + len(next(iter(self.seen.values())))

    def cut(self, size: int) -> None:
        """Forget the first `size` offsets."""
        for seen in self.seen.values():
            del seen[:size]
        self.first += size


class OffsetTracker:
    """The offsets of one partition that are read and not yet safe to commit.

    A crash loses nothing that is not in Kafka and in the ledger: make a new one at the committed offset, read
    from there, and tell it what the ledger says (`take_in_fates`).

    Parameters:
        first: the committed offset (where reading begins).
        handlers: whose deliveries each record makes.
        commit: "handoff": an offset is safe when every delivery is handed; "completion": when every one is settled.
        ordered: a parked delivery holds the commit back, as it holds back its key.
        holds_dead: a dead one does so too, until it is replayed or discarded.
    """

    def __init__(
        self, first: int, handlers: Iterable[str], commit: Commit, ordered: bool = False, holds_dead: bool = False
    ) -> None:
        self._first = self._end = first
        self._handlers = tuple(handlers)
        self._stretches: list[_OffsetStretch] = []
        unsafe = {Fate.OPEN} if commit == "handoff" else UNSETTLED
        held = {fate for fate, holds in ((Fate.PARKED, ordered), (Fate.DEAD, ordered and holds_dead)) if holds}
        self.unsafe = frozenset(unsafe | held)
        #: The fates of deliveries that others may wait for.
        self._awaited = frozenset((self.unsafe | {Fate.HANDED}) - {Fate.OPEN})

    @property
    def window(self) -> range:
        """Return the offsets from the first that is not safe to the last that was read."""
        return range(self._first, self._end)

    @property
    def windows(self) -> list[range]:
        """Return the window without its long gaps: the offsets to ask the ledger about."""
        return [range(stretch.first, stretch.end) for stretch in self._stretches]

    @property
    def size(self) -> int:
        """Return how many offsets the window has without its long gaps."""
        return sum(stretch.end - stretch.first for stretch in self._stretches)

    def read(self, offsets: Sequence[int]) -> list[range]:
        """Take in ascending offsets as Kafka gave them; return the gaps between them, for the ledger.

        What lies between two of them, or between the last read before and the first, is a gap. Offsets that
        were read before keep their fate; those below the window are safe and left out.
        """
        new = offsets
        if offsets and offsets[0] < self._end:
            new = [offset for offset in offsets if offset >= self._end]
            self._reread(offset for offset in offsets if self._first <= offset < self._end)
        if not new or not self._handlers:
            return []
        if new[-1] + 1 - self._end == len(new):
            self._take_in(self._end, len(new))
            return []
        gaps = []
        for run in _find_runs(new):
            if run.start > self._end:
                gaps.append(range(self._end, run.start))
            self._take_in(run.start, len(run))
        return gaps

    def pass_to(self, end: int) -> range:
        """Take the offsets below `end` that were not read as a gap, since no record lies there; return it."""
        gap = range(self._end, end) if self._handlers else range(0)
        if not gap:
            return gap
        if not self._stretches:
            self._first = end
        elif end - self._stretches[-1].end <= NEAR:
            for seen in self._stretches[-1].seen.values():
                seen += bytes([Fate.GAP]) * (end - self._stretches[-1].end)
        self._end = end
        return gap

    def mark(self, handler: str, offsets: Sequence[int], fate: Fate) -> None:
        """Note the fate that a write of this bridge gave ascending offsets in the ledger."""
        for stretch, some, _ in self._placed(offsets):
            seen, first = stretch.seen[handler], stretch.first
            if some[-1] - some[0] + 1 == len(some):
                seen[some[0] - first : some[-1] - first + 1] = bytes([fate]) * len(some)
            else:
                for offset in some:
                    seen[offset - first] = fate

    def learn(self, handler: str, offsets: Sequence[int], found: bytes) -> None:
        """Take in the ledger's fates of `offsets` (ascending), one byte each."""
        at = 0
        for run in _find_runs(offsets):
            self.take_in_fates(handler, run.start, found[at : at + len(run)])
            at += len(run)

    def take_in_fates(self, handler: str, first: int, found: bytes) -> list[FateChange]:
        """Take in the ledger's fates from offset `first` on, one byte each; return what changed, run by run.

        A gap that the ledger calls open stays a gap, and a record where the ledger has a gap stays open. What lies
        outside the window is left out.
        """
        changes = []
        for stretch in self._stretches:
            begin, end = max(first, stretch.first), min(first + len(found), stretch.end)
            if begin < end:
                changes += self._saw(stretch, handler, begin, found[begin - first : end - first])
        return changes

    def safe(self) -> int:
        """Return the offset to commit (the first to read again after a crash), and forget those below it."""
        while self._stretches:
            stretch = self._stretches[0]
            found = [fate_rules.find_fate(seen, self.unsafe) for seen in stretch.seen.values()]
            unsafe = [at for at in found if at >= 0]
            if unsafe:
                stretch.cut(min(unsafe))
                self._first = stretch.first
                return self._first
            del self._stretches[0]
        self._first = self._end
        return self._first

    def find_first_unsafe(self) -> dict[str, int]:
        """Return, by handler, the first offset of the window that is not safe to commit, if there is one."""
        found: dict[str, int] = {}
        for stretch in reversed(self._stretches):
            for name, seen in stretch.seen.items():
                if (at := fate_rules.find_fate(seen, self.unsafe)) >= 0:
                    found[name] = stretch.first + at
        return found

    def still_open(self, handler: str, offsets: Sequence[int]) -> Sequence[int]:
        """Return those of `offsets` that may be handed out: still open, and within the window."""
        return [
            offset
            for stretch, some, _ in self._placed(offsets)
            for offset in some
            if stretch.seen[handler][offset - stretch.first] == Fate.OPEN
        ]

    def fates(self, handler: str, offsets: Sequence[int]) -> bytes:
        """Return the fates of `offsets`, one byte each, as last seen; done for those below the window."""
        found = bytearray([Fate.DONE]) * len(offsets)
        for stretch, some, at in self._placed(offsets):
            seen, first = stretch.seen[handler], stretch.first
            if some[-1] - some[0] + 1 == len(some):
                found[at : at + len(some)] = seen[some[0] - first : some[-1] - first + 1]
            else:
                found[at : at + len(some)] = bytes(seen[offset - first] for offset in some)
        return bytes(found)

    def count(self, handler: str, fate: Fate) -> int:
        """Return how many offsets of the window have `fate`: HANDED are in flight, OPEN wait to be handed."""
        return sum(stretch.seen[handler].count(fate) for stretch in self._stretches)

    def oldest(self, handler: str, fate: Fate) -> int | None:
        """Return the lowest offset of the window that has `fate`."""
        for stretch in self._stretches:
            at = stretch.seen[handler].find(fate)
            if at >= 0:
                return stretch.first + at
        return None

    def find_awaited(self, handler: str) -> list[range]:
        """Return the stretches of the window that hold all deliveries of a handler that others may wait for."""
        return [
            range(stretch.first + found.start, stretch.first + found.stop)
            for stretch in self._stretches
            for found in fate_rules.find_fate_stretches(stretch.seen[handler], self._awaited, NEAR_FATES)
        ]

    def find(self, handler: str, fate: Fate, most: int) -> list[int]:
        """Return the lowest offsets of the window that have `fate`, at most so many."""
        found: list[int] = []
        for stretch in self._stretches:
            at = stretch.seen[handler].find(fate)
            while at >= 0 and len(found) < most:
                found.append(stretch.first + at)
                at = stretch.seen[handler].find(fate, at + 1)
        return found

    def _take_in(self, first: int, count: int) -> None:
        """Add `count` open records from `first` on, behind a gap if there is one."""
        if not self._stretches or first - self._stretches[-1].end > NEAR:
            self._stretches.append(_OffsetStretch(first, self._handlers))
        stretch = self._stretches[-1]
        fresh = bytes([Fate.GAP]) * (first - stretch.end) + bytes(count)
        for seen in stretch.seen.values():
            seen += fresh
        self._end = first + count

    def _saw(self, stretch: _OffsetStretch, handler: str, first: int, found: bytes) -> list[FateChange]:
        at = first - stretch.first
        before = bytes(stretch.seen[handler][at : at + len(found)])
        if before == found:
            return []
        both = ((int.from_bytes(before) << 4) | int.from_bytes(found)).to_bytes(len(found))
        changes = []
        for match in _CHANGED.finditer(both):
            run = range(first + match.start(), first + match.end())
            old, new = Fate(match[1][0] >> 4), Fate(match[1][0] & 15)
            if {old, new} == {Fate.GAP, Fate.OPEN}:
                continue
            stretch.seen[handler][match.start() + at : match.end() + at] = bytes([new]) * len(run)
            changes.append(FateChange(run, old, new))
        return changes

    def _placed(self, offsets: Sequence[int]) -> Iterator[tuple[_OffsetStretch, Sequence[int], int]]:
        """Yield the stretches that hold these offsets (ascending), with those that each holds and where they begin."""
        if not offsets:
            return
        if len(self._stretches) == 1:
            (stretch,) = self._stretches
            if offsets[0] >= stretch.first and offsets[-1] < stretch.end:
                yield stretch, offsets, 0
                return
        at = 0
        for stretch in self._stretches[max(0, bisect_right(self._stretches, offsets[0], key=_first_offset) - 1) :]:
            end = stretch.end
            while at < len(offsets) and offsets[at] < stretch.first:
                at += 1
            begin = at
            while at < len(offsets) and offsets[at] < end:
                at += 1
            if at > begin:
                yield stretch, offsets[begin:at], begin
            if at == len(offsets):
                return

    def _reread(self, offsets: Iterable[int]) -> None:
        for stretch, some, _ in self._placed(list(offsets)):
            for offset in some:
                for seen in stretch.seen.values():
                    if seen[offset - stretch.first] == Fate.GAP:  # a record lies there after all
                        seen[offset - stretch.first] = Fate.OPEN


def _first_offset(stretch: _OffsetStretch) -> int:
    return stretch.first


def _find_runs(offsets: Sequence[int]) -> Iterator[range]:
    """Yield the unbroken runs of ascending offsets."""
    start = before = offsets[0]
    for offset in offsets[1:]:
        if offset != before + 1:
            yield range(start, before + 1)
            start = offset
        before = offset
    yield range(start, before + 1)
