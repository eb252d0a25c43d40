"""The handlers of which nothing is handed off while a dependency is down (pure)."""

from collections.abc import Iterable
from typing import NamedTuple

from bridge.handler_routes import Handler

#: No handlers.
NO_HANDLERS: frozenset[str] = frozenset()


class SuspendedHandlers(NamedTuple):
    """The suspended handlers, by how far.

    Attributes:
        down: a partition whose handlers are all among these waits in Kafka. If only some are, their deliveries wait in
            the broker, so that the other handlers go on.
        full: nothing of these is handed off, even if other handlers of the partition go on.
        parked: no retry or replay record of these is handed off.
    """

    down: frozenset[str] = NO_HANDLERS
    full: frozenset[str] = NO_HANDLERS
    parked: frozenset[str] = NO_HANDLERS

    def find_suspended(self, handlers: Iterable[Handler]) -> frozenset[str]:
        """Return the handlers of a partition of which nothing is handed off."""
        names = {handler.name for handler in handlers}
        return self.down & names if names <= self.down else self.full & names
