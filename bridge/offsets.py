"""Which offset of a partition is safe to commit (pure).

The bridge's own picture of the fates between the committed offset and the last one read: one byte per offset
and handler, no object per offset, so that a hundred thousand in flight are searched and compared in C.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from bridge.ledger import fates
from bridge.ledger.fates import OVERWRITES, Fate

Commit = Literal["handoff", "completion"]

# A byte is (fate before) * 16 + (fate now): a run of one same byte in which the two differ.
_CHANGED = re.compile(b"([^" + b"".join(re.escape(bytes([f * 17])) for f in Fate) + rb"])\1*", re.DOTALL)


class Change(NamedTuple):
    """A run of offsets that all went from fate `before` to `fate`."""

    offsets: range
    before: Fate
    fate: Fate

    @property
    def went_back(self) -> bool:
        """The ledger lost it, or what was stuck was opened again: it must be read and handed out again."""
        return self.fate is Fate.OPEN or self.before not in OVERWRITES[self.fate]


class Offsets:
    """The offsets of one partition that are read and not yet safe to commit.

    A crash loses nothing that is not in Kafka and in the ledger: make a new one at the committed offset, read
    from there, and tell it what the ledger says (`saw`).

    Args:
        first: the committed offset (where reading begins).
        handlers: whose deliveries each record makes.
        commit: "handoff": an offset is safe when every delivery is handed; "completion": when every one is
        settled. ordered: a parked delivery holds the commit back, as it holds back its key.
    """

    def __init__(self, first: int, handlers: Iterable[str], commit: Commit, ordered: bool = False) -> None:
        self._first = self._end = first
        self._seen = {handler: bytearray() for handler in handlers}
        unsafe = {Fate.OPEN} if commit == "handoff" else {Fate.OPEN, Fate.HANDED}
        self.unsafe = frozenset(unsafe | {Fate.PARKED} if ordered else unsafe)

    @property
    def window(self) -> range:
        """From the first offset that is not safe to the last that was read: what to ask the ledger about."""
        return range(self._first, self._end)

    def read(self, offsets: Sequence[int]) -> list[range]:
        """Take in `offsets` (ascending) as Kafka gave them; return those that hold no record, for the ledger
        to mark as gaps.

        What lies between two of them, or between the last read before and the first, is a gap. Offsets that
        were read before keep their fate; those below the window are safe and left out.
        """
        new = offsets
        if offsets and offsets[0] < self._end:
            new = [offset for offset in offsets if offset >= self._end]
            self._reread(offset for offset in offsets if self._first <= offset < self._end)
        if not new:
            return []
        start, end = self._end, new[-1] + 1
        self._end = end
        if end - start == len(new):
            for seen in self._seen.values():
                seen += bytes(len(new))
            return []
        fresh = bytearray([Fate.GAP]) * (end - start)
        for offset in new:
            fresh[offset - start] = Fate.OPEN
        for seen in self._seen.values():
            seen += fresh
        return [range(start + run.start, start + run.stop) for run in fates.runs(bytes(fresh), {Fate.GAP})]

    def mark(self, handler: str, offsets: Sequence[int], fate: Fate) -> None:
        """Note that the ledger has `fate` for `offsets` (ascending): what a write of this bridge changed."""
        if not offsets:
            return
        seen, first = self._seen[handler], self._first
        if offsets[0] >= first and offsets[-1] - offsets[0] + 1 == len(offsets):
            seen[offsets[0] - first : offsets[-1] - first + 1] = bytes([fate]) * len(offsets)
            return
        for offset in offsets:
            if offset >= first:
                seen[offset - first] = fate

    def saw(self, handler: str, first: int, found: bytes) -> list[Change]:
        """Take in the ledger's fates from offset `first` on, one byte each; return what changed, run by run.

        A gap that the ledger calls open stays a gap. What lies outside the window is left out.
        """
        skip = max(0, self._first - first)
        found = found[skip : skip + max(0, self._end - first - skip)]
        at = first + skip - self._first
        before = bytes(self._seen[handler][at : at + len(found)])
        if before == found:
            return []
        both = ((int.from_bytes(before) << 4) | int.from_bytes(found)).to_bytes(len(found))
        changes = []
        for match in _CHANGED.finditer(both):
            run = range(self._first + at + match.start(), self._first + at + match.end())
            old, new = Fate(match[1][0] >> 4), Fate(match[1][0] & 15)
            if old is Fate.GAP and new is Fate.OPEN:
                continue
            self.mark(handler, run, new)
            changes.append(Change(run, old, new))
        return changes

    def safe(self) -> int:
        """Return the offset to commit (the first to read again after a crash), and forget those below it."""
        found = [fates.find(seen, self.unsafe) for seen in self._seen.values()]
        unsafe = [at for at in found if at >= 0]
        done = min(unsafe) if unsafe else self._end - self._first
        if done:
            for seen in self._seen.values():
                del seen[:done]
            self._first += done
        return self._first

    def still_open(self, handler: str, offsets: Sequence[int]) -> Sequence[int]:
        """Return those of `offsets` that may be handed out: still open, and within the window."""
        seen, first, end = self._seen[handler], self._first, self._end
        return [o for o in offsets if first <= o < end and seen[o - first] == Fate.OPEN]

    def fates(self, handler: str, offsets: Sequence[int]) -> bytes:
        """Return the fates of `offsets`, one byte each, as last seen; done for those below the window."""
        seen, first = self._seen[handler], self._first
        if offsets and offsets[0] >= first and offsets[-1] - offsets[0] + 1 == len(offsets):
            return bytes(seen[offsets[0] - first : offsets[-1] - first + 1])
        return bytes(seen[o - first] if o >= first else Fate.DONE for o in offsets)

    def count(self, handler: str, fate: Fate) -> int:
        """Return how many offsets of the window have `fate`: HANDED are in flight, OPEN wait to be handed."""
        return self._seen[handler].count(fate)

    def oldest(self, handler: str, fate: Fate) -> int | None:
        """Return the lowest offset of the window that has `fate`."""
        at = self._seen[handler].find(fate)
        return self._first + at if at >= 0 else None

    def _reread(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            for seen in self._seen.values():
                if seen[offset - self._first] == Fate.GAP:  # a record lies there after all
                    seen[offset - self._first] = Fate.OPEN
