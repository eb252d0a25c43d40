"""The dead: owners that have stopped showing that they live, and what they held goes back to its queues.

An owner is dead when its beat has not changed for its ``dead_after`` seconds *of uninterrupted watching*:
seconds of this process's own monotonic clock, counted from nothing again whenever the watcher itself was
asleep or could not reach Redis. So neither a difference of clocks, nor a Redis that was frozen, restarted
or cut off from everybody, nor a watcher that was paused, lets a living owner look dead. The price: after
the last worker was killed, the next one to start watches for ``dead_after`` seconds before it puts back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import monotonic

from kombu.log import get_logger

from lossless.transport.holding import CHUNK, Run
from lossless.transport.owners import Watch, in_order
from lossless.transport.scripts import EPOCH_FIELD, SWEEP
from lossless.transport.stored import PREFETCHED, RESTORED, Keys, is_text, marked, text

logger = get_logger("lossless.transport")


class Sweep:
    """Watches all owners at one broker, and puts back what the dead ones held.

    Parameters:
        keys: the names of the keys.
        run: calls a script, raises redis-py's errors.
        fields: reads a hash, raises redis-py's errors.
        dead_after: seconds after which an owner that says no time of its own is dead.
    """

    def __init__(self, keys: Keys, run: Run, fields: Callable[[str], dict[bytes, bytes]], dead_after: float) -> None:
        self.keys = keys
        #: How many owners there are, as of the last look.
        self.owners = 1
        self._run = run
        self._fields = fields
        self._watch = Watch(dead_after)
        self._beats: dict[str, str] = {}

    def pause(self) -> float:
        """Return the seconds to the next look."""
        return self._watch.pause()

    def dead(self, own: Collection[str]) -> list[str]:
        """Look at all owners, and return the dead ones; `put_back` each. ``own``: those of this process."""
        found = self._fields(self.keys.owners).items()
        self._beats = {text(owner): text(beat) for owner, beat in found if is_text(owner) and is_text(beat)}
        self.owners = len(self._beats)
        return [owner for owner in self._watch.dead(self._beats, monotonic()) if owner not in own]

    def put_back(self, owner: str) -> None:
        """Put back what an owner held, unless it lives after all.

        Raises `RuntimeError` for what Redis refused, and redis-py's errors.
        """
        held = {text(name): value for name, value in self._fields(self.keys.taken(owner)).items()}
        held.pop(EPOCH_FIELD, None)
        begun = self._begun(owner)
        fields = in_order(set(held))
        moved = foreign = 0
        for start in range(0, max(1, len(fields)), CHUNK):  # one that held nothing ends too
            args: list[str | bytes] = [owner, self._beats[owner]]
            for name in fields[start : start + CHUNK]:
                key, cut, raw = held[name].partition(b"\0")
                foreign += not cut
                counted = PREFETCHED if begun is not None and name not in begun else RESTORED
                back = (key, marked(raw, counted)) if cut else (self.keys.undecodable, held[name])
                args += [name.encode(errors="surrogateescape"), *back]
            count = self._run(SWEEP, [self.keys.taken(owner), self.keys.owners], args)
            if count < 0:
                return  # it lives, or another has put back the rest
            moved += count
        self._report(moved, foreign)
        if moved < len(fields):
            raise RuntimeError(f"Redis refused {len(fields) - moved} of {len(fields)} messages")

    def _begun(self, owner: str) -> set[str] | None:
        """The fields of what it had begun with, as far as it has said; None where it has never said anything."""
        said = self._fields(self.keys.begun).get(owner.encode(errors="surrogateescape"))
        return None if said is None else set(text(said).split(","))

    def _report(self, moved: int, foreign: int) -> None:
        if moved > foreign:
            logger.warning("Put back %d messages that a dead worker held", moved - foreign)
        if foreign:
            logger.error("%d values that are none of ours are moved to the list %r", foreign, self.keys.undecodable)
