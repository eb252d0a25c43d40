"""Partitions paused by a halt of their topic, or because their handlers are suspended (pure)."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.delivery_identity import Place

#: Why such a partition is paused, for status and metrics.
HALTED: Final = "halted"


def find_halted_partitions(
    places: Iterable[Place], halted: Collection[str], source_of: Callable[[str], str]
) -> dict[Place, str]:
    """The partitions whose source topic is halted.

    Parameters:
        source_of: of a topic's name, the topic whose records lie there; of a source its own.
    """
    if not halted:
        return {}
    return dict.fromkeys((place for place in places if source_of(place[0]) in halted), HALTED)


#: Why such a partition is paused, for status and metrics: all its handlers may not run, or some.
DEPENDENCIES_DOWN: Final = "what its handlers need is down"
SOME_DEPENDENCIES_DOWN: Final = "what some of its handlers need is down, and as much waits for it as may"


def find_suspended_partitions(
    partitions: Iterable[Any], kept: SuspendedHandlers, pressed: Collection[Place] = ()
) -> dict[Place, str]:
    """The partitions of which every handler is kept, and those that some of them keep from going on.

    Parameters:
        pressed: those that pause because enough of theirs waits.
    """
    found: dict[Place, str] = {}
    for partition in partitions:
        handlers = getattr(partition, "handlers", ())
        names = kept.of(handlers)
        if names and len(names) == len({handler.name for handler in handlers}):
            found[partition.place] = DEPENDENCIES_DOWN
        elif names and partition.place in pressed:
            found[partition.place] = SOME_DEPENDENCIES_DOWN
    return found
