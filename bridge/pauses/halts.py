"""Partitions that wait because their topic is halted: its own, and those of what is retried of it (pure)."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from bridge.records.place import Place

#: Why such a partition is paused, for status and metrics.
HALTED: Final = "halted"


def pauses(places: Iterable[Place], halted: Collection[str], source_of: Callable[[str], str]) -> dict[Place, str]:
    """The partitions whose source topic is halted.

    Parameters:
        source_of: of a topic's name, the topic whose records lie there; of a source its own.
    """
    if not halted:
        return {}
    return dict.fromkeys((place for place in places if source_of(place[0]) in halted), HALTED)
