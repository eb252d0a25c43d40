"""A partition begins anew, or is given up, in every part that knows of it."""

from collections.abc import Collection

from bridge.kafka import Consumer
from bridge.loop.parts import Parts
from bridge.records.place import Place


def begin_anew(parts: Parts, consumer: Consumer, places: Collection[Place]) -> None:
    """Pause these until it is found out where they begin; nothing that was known of them counts."""
    if not places:
        return
    parts.held.drop(places)
    parts.rereads.forget(places)
    parts.beginnings.add(places)
    parts.pauses.begin(consumer, places)


def give_up(parts: Parts, places: Collection[Place]) -> None:
    """These are another bridge's now, or gone."""
    parts.assignment.remove(places)
    parts.held.drop(places)
    parts.beginnings.forget(places)
    parts.rereads.forget(places)
    parts.pauses.forget(places)
    parts.before.kafka.forget(places)
    parts.before.metrics.forget(places)
