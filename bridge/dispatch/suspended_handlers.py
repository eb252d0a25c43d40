"""The handlers of which nothing is handed off while a dependency is down, or while they are halted (pure)."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from bridge.formats.halt_scope import HaltScope
from bridge.handler_routes import Handler
from lossless.transport.message_gates import AsideSize

#: No handlers.
NO_HANDLERS: frozenset[str] = frozenset()
#: A source topic and a handler.
TopicHandler = tuple[str, str]


class HaltedHandlers(NamedTuple):
    """The handlers that are halted on a topic.

    Attributes:
        halted: as `SuspendedHandlers.down`, and of these no retry or replay record is handed off.
        full: as `SuspendedHandlers.full`: as much waits for them, or for their halted keys, as may.
        keys: the halted keys of handlers that are not halted.
    """

    halted: frozenset[TopicHandler] = frozenset()
    full: frozenset[TopicHandler] = frozenset()
    keys: frozenset[tuple[TopicHandler, bytes]] = frozenset()

    def find_halted(self, topic: str) -> frozenset[str]:
        """Return the handlers that are halted on a source topic."""
        return _find_on_topic(self.halted, topic)

    def find_full(self, topic: str) -> frozenset[str]:
        """Return the handlers of a source topic for which as much waits as may."""
        return _find_on_topic(self.full, topic)

    def find_keys(self, topic: str) -> Mapping[str, Collection[bytes]]:
        """Return the halted keys of a source topic, by handler."""
        found: dict[str, set[bytes]] = {}
        for (of, name), key in self.keys:
            if of == topic:
                found.setdefault(name, set()).add(key)
        return found


def _find_on_topic(handlers: Iterable[TopicHandler], topic: str) -> frozenset[str]:
    return frozenset(name for of, name in handlers if of == topic) if handlers else NO_HANDLERS


NONE_HALTED = HaltedHandlers()


class SuspendedHandlers(NamedTuple):
    """The suspended handlers, by how far.

    Attributes:
        down: a partition whose handlers are all among these waits in Kafka. If only some are, their deliveries wait in
            the broker, so that the other handlers go on.
        full: nothing of these is handed off, even if other handlers of the partition go on.
        parked: no retry or replay record of these is handed off.
        by_halt: the handlers that are halted on one topic.
        limited: those of `down` whose limit is the reason, and no dependency.
    """

    down: frozenset[str] = NO_HANDLERS
    full: frozenset[str] = NO_HANDLERS
    parked: frozenset[str] = NO_HANDLERS
    by_halt: HaltedHandlers = NONE_HALTED
    limited: frozenset[str] = NO_HANDLERS

    def find_suspended(self, handlers: Iterable[Handler], topic: str = "") -> frozenset[str]:
        """Return the handlers of a partition of a source topic of which nothing is handed off."""
        names = {handler.name for handler in handlers}
        down = self.find_down(topic)
        if names <= down:
            return down & names
        return (self.full | self.by_halt.find_full(topic)) & names

    def find_down(self, topic: str) -> frozenset[str]:
        """Return the handlers that may not run on a source topic."""
        return self.down | self.by_halt.find_halted(topic)

    def find_parked(self, topic: str) -> frozenset[str]:
        """Return the handlers of which no retry or replay record of a source topic is handed off."""
        return self.parked | self.by_halt.find_halted(topic)

    def is_halted(self, handler: str, topic: str) -> bool:
        """Return whether a handler is suspended on a topic because it, or one of its keys, is halted there."""
        return (topic, handler) in self.by_halt.halted or (topic, handler) in self.by_halt.full


def find_halted_handlers(held: Mapping[HaltScope, AsideSize | None], most: AsideSize) -> HaltedHandlers:
    """Return the handlers that halts suspend (pure).

    Parameters:
        held: by halted handler or key, the messages that wait for it in the broker; `None`: the broker has no gates, so
            that nothing may wait there for a halted handler.
        most: how much may wait for one handler and topic.
    """
    sizes: dict[TopicHandler, list[AsideSize]] = {}
    for scope, size in held.items():
        without_gates = most if scope.key is None else AsideSize()
        sizes.setdefault((scope.topic, scope.handler), []).append(without_gates if size is None else size)
    return HaltedHandlers(
        frozenset((scope.topic, scope.handler) for scope in held if scope.key is None),
        frozenset(
            whose
            for whose, some in sizes.items()
            if sum(size.messages for size in some) >= most.messages or sum(size.bytes for size in some) >= most.bytes
        ),
        frozenset(
            ((scope.topic, scope.handler), key)
            for scope in held
            if (key := scope.key_bytes) is not None and scope._replace(key=None) not in held
        ),
    )
