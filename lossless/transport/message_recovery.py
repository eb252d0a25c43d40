"""The recovery of taken messages whose worker is dead or whose channel is closed.

An owner is dead if its heartbeat has not changed for `dead_after` seconds of uninterrupted watching by this process's
own monotonic clock. So neither clock differences, nor a frozen Redis, nor a paused watcher makes a living owner look
dead. The messages of a dead owner go back into their queues.

Messages of a closed channel are kept until the tasks that work on them have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from kombu.log import get_logger

from lossless.transport.celery_worker_state import running_tags, stopping
from lossless.transport.inflight_messages import CHUNK, MessageHolder, RunScript
from lossless.transport.message_ownership import read_patience, sort_fields
from lossless.transport.storage_layout import (
    PREFETCHED,
    RESTORED,
    TransportKeys,
    decode_text,
    is_our_text,
    mark_redelivered,
)
from lossless.transport.transport_scripts import EPOCH_FIELD, SWEEP_OWNER

logger = get_logger("lossless.transport")


#: The default of `dead_after`: seconds without a heartbeat after which an owner is dead. One that does not say its time
#: is dead then at the earliest.
DEAD_AFTER = 30.0

#: The shortest pause between two looks, in seconds, however short a time some owner says.
SHORTEST_PAUSE = 0.1


class OwnerWatch:
    """The watch over all owners' heartbeats, which finds the dead ones.

    Parameters:
        dead_after: the watcher's own; owners that say none are given it, or the default where that is longer.
    """

    def __init__(self, dead_after: float) -> None:
        self.dead_after = dead_after
        self._seen: dict[str, tuple[str, float]] = {}
        self._watched_at = -math.inf

    def dead(self, beats: Mapping[str, str], now: float) -> list[str]:
        """Return the dead owners, given each owner's beat and the watcher's monotonic time in seconds.

        The time counts from nothing again where the watcher itself was away for half of it.
        """
        away, self._watched_at = now - self._watched_at, now
        self._seen = {owner: (beat, self._since(owner, beat, now, away)) for owner, beat in beats.items()}
        return [owner for owner, (_, since) in self._seen.items() if now - since >= self._patience(owner)]

    def pause(self) -> float:
        """Return the seconds to the next check: often enough for the owner with the shortest time."""
        shortest = min([self.dead_after, *map(self._patience, self._seen)])
        return max(SHORTEST_PAUSE, shortest / 6)

    def _patience(self, owner: str) -> float:
        return read_patience(owner) or max(self.dead_after, DEAD_AFTER)

    def _since(self, owner: str, beat: str, now: float, away: float) -> float:
        seen = self._seen.get(owner)
        if seen is None or seen[0] != beat or away > max(self._patience(owner) / 2, 3 * SHORTEST_PAUSE):
            return now
        return seen[1]


class DeadOwnerSweep:
    """The sweep over all owners at one broker, which puts back the messages of dead ones.

    Parameters:
        keys: the names of the keys.
        run: calls a script, raises redis-py's errors.
        fields: reads a hash, raises redis-py's errors.
        dead_after: seconds after which an owner that says no time of its own is dead.
    """

    def __init__(
        self, keys: TransportKeys, run: RunScript, fields: Callable[[str], dict[bytes, bytes]], dead_after: float
    ) -> None:
        self.keys = keys
        #: The number of owners at the last check.
        self.owners = 1
        self._run = run
        self._fields = fields
        self._watch = OwnerWatch(dead_after)
        self._beats: dict[str, str] = {}

    def pause(self) -> float:
        """Return the seconds to the next check."""
        return self._watch.pause()

    def dead(self, own: Collection[str]) -> list[str]:
        """Check all owners, and return the dead ones, to be `put_back`; ``own`` are those of this process."""
        found = self._fields(self.keys.owners).items()
        self._beats = {
            decode_text(owner): decode_text(beat) for owner, beat in found if is_our_text(owner) and is_our_text(beat)
        }
        self.owners = len(self._beats)
        return [owner for owner in self._watch.dead(self._beats, monotonic()) if owner not in own]

    def put_back(self, owner: str) -> None:
        """Put back the messages of an owner, unless it lives after all.

        Raises `RuntimeError` for what Redis refused, and redis-py's errors.
        """
        held = {decode_text(name): value for name, value in self._fields(self.keys.taken(owner)).items()}
        held.pop(EPOCH_FIELD, None)
        begun = self._begun(owner)
        fields = sort_fields(set(held))
        moved = foreign = 0
        for start in range(0, max(1, len(fields)), CHUNK):  # one that held nothing ends too
            args: list[str | bytes] = [owner, self._beats[owner]]
            for name in fields[start : start + CHUNK]:
                key, cut, raw = held[name].partition(b"\0")
                foreign += not cut
                counted = PREFETCHED if begun is not None and name not in begun else RESTORED
                back = (key, mark_redelivered(raw, counted)) if cut else (self.keys.undecodable, held[name])
                args += [name.encode(errors="surrogateescape"), *back]
            count = self._run(SWEEP_OWNER, [self.keys.taken(owner), self.keys.owners], args)
            if count < 0:
                return  # it lives, or another has put back the rest
            moved += count
        self._report(moved, foreign)
        if moved < len(fields):
            raise RuntimeError(f"Redis refused {len(fields) - moved} of {len(fields)} messages")

    def _begun(self, owner: str) -> set[str] | None:
        """Return the fields of messages with which an owner's tasks had begun; None if it never reported any."""
        said = self._fields(self.keys.begun).get(owner.encode(errors="surrogateescape"))
        return None if said is None else set(decode_text(said).split(","))

    def _report(self, moved: int, foreign: int) -> None:
        if moved > foreign:
            logger.warning("Put back %d messages that a dead worker held", moved - foreign)
        if foreign:
            logger.error("%d values that are none of ours are moved to the list %r", foreign, self.keys.undecodable)


#: Seconds for which a message without a task is kept: a task may be about to begin, or has just ended.
PATIENCE = 1.0


class OrphanedHolders:
    """The holders of one process whose channels are closed."""

    def __init__(self) -> None:
        self._holders: set[MessageHolder] = set()
        #: Since when no task works on a message, by its tag.
        self._idle: dict[str, float] = {}

    def __contains__(self, holder: MessageHolder) -> bool:
        return holder in self._holders

    def add(self, holder: MessageHolder) -> None:
        """Keep a holder whose channel is closed."""
        self._holders.add(holder)

    def discard(self, holder: MessageHolder) -> None:
        """Keep a holder no longer."""
        self._holders.discard(holder)
        self._idle = {tag: at for tag, at in self._idle.items() if not tag.startswith(holder.owner)}

    def tend(self, holder: MessageHolder) -> bool:
        """Give back the messages that no task works on any more. Returns whether the holder has ended.

        Raises redis-py's errors; nothing is forgotten then.
        """
        running = set() if stopping() else running_tags()
        now = monotonic()
        for tag in holder.tags:
            if tag in running:
                self._idle.pop(tag, None)
            elif now - self._idle.setdefault(tag, now) > PATIENCE:
                holder.give_back(tag, front=True)  # its task was cancelled: nobody will settle it
        return holder.leave()
