"""Partitions that wait because handlers of theirs may not run: what they need is down (pure)."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from bridge.handoff.keeping import Kept
from bridge.records.place import Place

#: Why such a partition is paused, for status and metrics: all its handlers may not run, or some.
NEEDS: Final = "what its handlers need is down"
SOME: Final = "what some of its handlers need is down, and as much waits for it as may"


def pauses(partitions: Iterable[Any], kept: Kept, pressed: Collection[Place] = ()) -> dict[Place, str]:
    """The partitions of which every handler is kept, and those that some of them keep from going on.

    Parameters:
        pressed: those that pause because enough of theirs waits.
    """
    found: dict[Place, str] = {}
    for partition in partitions:
        handlers = getattr(partition, "handlers", ())
        names = kept.of(handlers)
        if names and len(names) == len({handler.name for handler in handlers}):
            found[partition.place] = NEEDS
        elif names and partition.place in pressed:
            found[partition.place] = SOME
    return found
