"""Partitions that wait because none of their handlers may run: what they need is down (pure)."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from bridge.records.place import Place

#: Why such a partition is paused, for status and metrics.
NEEDS: Final = "what its handlers need is down"


def pauses(partitions: Iterable[Any], held: Collection[str]) -> dict[Place, str]:
    """The partitions of which every handler is held."""
    if not held:
        return {}
    return {
        partition.place: NEEDS
        for partition in partitions
        if (handlers := getattr(partition, "handlers", ())) and all(handler.name in held for handler in handlers)
    }
