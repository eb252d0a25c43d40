"""Owners: their names, and which of them have stopped showing that they live (pure)."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping

#: Seconds without a beat after which an owner that does not say its time is dead at the earliest: the default.
UNSAID = 30.0

#: The shortest pause between two looks, in seconds, however short a time some owner says.
SOONEST = 0.1


def new_owner(dead_after: float) -> str:
    """Return a name that nobody has. It says for how long its owner may be silent: that is the owner's to decide.

    Others that watch it may have another `dead_after`: the setting is changed one worker after the other. To
    versions that do not read it, it is a name like any other.
    """
    return f"{uuid.uuid4().hex}:{dead_after:g}"


def said_by(owner: str) -> float | None:
    """Return for how many seconds an owner says that it may be silent, None if it says nothing (sensible)."""
    try:
        seconds = float(owner.partition(":")[2])
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def in_order(fields: set[str]) -> list[str]:
    """Return the fields of an owner's hash, the last taken first; what is no field of ours comes first of all."""
    return sorted(fields, key=lambda field: int(field) if field.isdecimal() else math.inf, reverse=True)


class Watch:
    """Which owners have stopped: `dead` is told the beats and the time, and names the dead.

    Parameters:
        dead_after: the watcher's own; owners that say none are given it, or the default where that is longer.
    """

    def __init__(self, dead_after: float) -> None:
        self.dead_after = dead_after
        self._seen: dict[str, tuple[str, float]] = {}
        self._watched_at = -math.inf

    def dead(self, beats: Mapping[str, str], now: float) -> list[str]:
        """Return the dead, given each owner's beat and the watcher's monotonic time in seconds.

        The time counts from nothing again where the watcher itself was away for half of it.
        """
        away, self._watched_at = now - self._watched_at, now
        self._seen = {owner: (beat, self._since(owner, beat, now, away)) for owner, beat in beats.items()}
        return [owner for owner, (_, since) in self._seen.items() if now - since >= self._patience(owner)]

    def pause(self) -> float:
        """Return the seconds to the next look: often enough for the owner that says the shortest time."""
        shortest = min([self.dead_after, *map(self._patience, self._seen)])
        return max(SOONEST, shortest / 6)

    def _patience(self, owner: str) -> float:
        return said_by(owner) or max(self.dead_after, UNSAID)

    def _since(self, owner: str, beat: str, now: float, away: float) -> float:
        seen = self._seen.get(owner)
        if seen is None or seen[0] != beat or away > max(self._patience(owner) / 2, 3 * SOONEST):
            return now
        return seen[1]
