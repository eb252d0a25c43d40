"""The detection of dead owners, whose taken messages go back into their queues.

An owner is dead if its heartbeat has not changed for `dead_after` seconds of uninterrupted watching by this process's
own monotonic clock. So neither clock differences, nor a frozen Redis, nor a paused watcher makes a living owner look
dead.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping

#: Seconds without a beat after which an owner that does not say its time is dead at the earliest: the default.
DEFAULT_PATIENCE = 30.0

#: The shortest pause between two looks, in seconds, however short a time some owner says.
SHORTEST_PAUSE = 0.1


def make_owner(dead_after: float) -> str:
    """Return a unique owner name, which also holds the seconds without a heartbeat after which the owner is dead.

    Others that watch it may have another `dead_after`: the setting is changed one worker after the other. To
    versions that do not read it, it is a name like any other.
    """
    return f"{uuid.uuid4().hex}:{dead_after:g}"


def read_patience(owner: str) -> float | None:
    """Return the seconds without a heartbeat in an owner's name, None if it holds none (that make sense)."""
    try:
        seconds = float(owner.partition(":")[2])
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


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
        return read_patience(owner) or max(self.dead_after, DEFAULT_PATIENCE)

    def _since(self, owner: str, beat: str, now: float, away: float) -> float:
        seen = self._seen.get(owner)
        if seen is None or seen[0] != beat or away > max(self._patience(owner) / 2, 3 * SHORTEST_PAUSE):
            return now
        return seen[1]
