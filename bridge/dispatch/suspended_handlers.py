"""Handlers of which nothing is handed off for now, since a dependency is down (pure)."""

from collections.abc import Iterable
from typing import NamedTuple

from bridge.handler_routes import Handler

#: None of them.
NO_HANDLERS: frozenset[str] = frozenset()


class SuspendedHandlers(NamedTuple):
    """Which they are.

    Attributes:
        down: where all handlers of a partition are among these, nothing of it is handed off: it waits in Kafka.
        full: nothing of these is handed off, also where others of the partition go on. What is handed off of the rest
            waits in the broker: records are read on, and those others do not wait.
        parked: nothing is handed off of what was parked of these, whoever else has some there.
    """

    down: frozenset[str] = NO_HANDLERS
    full: frozenset[str] = NO_HANDLERS
    parked: frozenset[str] = NO_HANDLERS

    def of(self, handlers: Iterable[Handler]) -> frozenset[str]:
        """Those of a partition's handlers of which nothing is handed off."""
        names = {handler.name for handler in handlers}
        return self.down & names if names <= self.down else self.full & names
