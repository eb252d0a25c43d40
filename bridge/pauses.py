"""Which partitions are paused, and why."""

from collections.abc import Iterable, Mapping
from typing import Final

from bridge.assignment import Assignment
from bridge.kafka import Consumer, TopicPartition
from bridge.metrics import BridgeMetrics, Place
from bridge.queues import Queues

HANDOFF_BLOCKED: Final = "handoff"


class Pauses:
    """What is paused in librdkafka, kept as it should be."""

    def __init__(self, assignment: Assignment, queues: Queues, metrics: BridgeMetrics) -> None:
        self._assignment, self._queues, self._metrics = assignment, queues, metrics
        self._reasons: dict[Place, str] = {}

    @property
    def reasons(self) -> Mapping[Place, str]:
        """Why each partition that is paused is."""
        return self._reasons

    def apply(self, consumer: Consumer, *, blocked: bool) -> None:
        """Bring what is paused to what should be; what is newly assigned is paused or resumed too.

        Parameters:
            blocked: nothing can be handed off.
        """
        wanted = dict.fromkeys(self._assignment, HANDOFF_BLOCKED) if blocked else self._wanted()
        if wanted.keys() != self._reasons.keys():
            pause = wanted.keys() - self._reasons.keys()
            resume = {place for place in self._reasons.keys() - wanted.keys() if place in self._assignment}
            if pause:
                consumer.pause([TopicPartition(*place) for place in pause])
            if resume:
                consumer.resume([TopicPartition(*place) for place in resume])
        if wanted != self._reasons:
            self._metrics.show_paused(wanted)
        self._reasons = wanted

    def forget(self, places: Iterable[Place]) -> None:
        """A pause outlives a revocation (librdkafka issue 1849): after this it is put or lifted anew."""
        for place in places:
            self._reasons.pop(place, None)

    def _wanted(self) -> dict[Place, str]:
        wanted = {
            partition.place: reason
            for partition in self._assignment.partitions
            if (reason := partition.pressure()) is not None
        }
        wanted.update(self._queues.pauses(self._assignment))
        return wanted
