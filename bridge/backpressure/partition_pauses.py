"""The partitions that are paused, and why: the one place that pauses and resumes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bridge.backpressure.queue_pressure import QueuePressure
from bridge.backpressure.topic_pressure import TopicPressure
from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.suspended_handlers import SuspendedHandlers
from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason
from bridge.kafka.clients import Consumer, TopicPartition
from bridge.partitions.assignment import Assignment


class PartitionPauses:
    """What is paused in librdkafka, kept as it should be.

    Parameters:
        source_of: of a topic's name, the topic whose records lie there; of a source its own.
    """

    def __init__(
        self,
        assignment: Assignment,
        queues: QueuePressure,
        metrics: BridgeMetrics,
        source_of: Callable[[str], str] = str,
        sources: TopicPressure | None = None,
    ) -> None:
        self._assignment, self._queues, self._metrics = assignment, queues, metrics
        self._sources = sources
        self._source_of = source_of
        self._reasons: dict[Place, str] = {}
        self._shown: dict[Place, str] = {}

    @property
    def reasons(self) -> Mapping[Place, str]:
        """Why each partition that is paused is."""
        return self._reasons

    def apply(
        self,
        consumer: Consumer,
        beginning: Iterable[Place],
        *,
        blocked: bool,
        halted: Collection[str] = (),
        kept: SuspendedHandlers = SuspendedHandlers(),  # noqa: B008
    ) -> None:
        """Bring what is paused to what should be; what is newly assigned is paused or resumed too.

        Parameters:
            beginning: the partitions that have not begun.
            blocked: nothing can be handed off.
            halted: the source topics whose consumption is halted.
            kept: the handlers of which nothing is handed off, and where.
        """
        wanted: dict[Place, str] = (
            dict.fromkeys(self._assignment, PauseReason.HANDOFF_BLOCKED)
            if blocked
            else self._wanted(beginning, halted, kept)
        )
        if wanted.keys() != self._reasons.keys():
            pause = wanted.keys() - self._reasons.keys()
            resume = {place for place in self._reasons.keys() - wanted.keys() if place in self._assignment}
            if pause:
                consumer.pause([TopicPartition(*place) for place in pause])
            if resume:
                consumer.resume([TopicPartition(*place) for place in resume])
        self._reasons = wanted
        # Against what is shown: what was given up is in none of both.
        if wanted != self._shown:
            self._metrics.show_paused(wanted)
            self._shown = {**wanted}

    def begin(self, consumer: Consumer, places: Collection[Place]) -> None:
        """Pause what is newly assigned: where it begins is to be found out first."""
        self._reasons |= dict.fromkeys(places, PauseReason.START_UNKNOWN)
        consumer.pause([TopicPartition(*place) for place in places])

    def forget(self, places: Iterable[Place]) -> None:
        """A pause outlives a revocation (librdkafka issue 1849): after this it is put or lifted anew."""
        for place in places:
            self._reasons.pop(place, None)

    def _wanted(self, beginning: Iterable[Place], halted: Collection[str], kept: SuspendedHandlers) -> dict[Place, str]:
        wanted: dict[Place, str] = {
            partition.place: reason
            for partition in self._assignment.partitions
            if (reason := partition.pressure()) is not None
        }
        pressed = frozenset(wanted)
        wanted.update(self._queues.pauses(self._assignment))
        if self._sources is not None:
            wanted.update(self._sources.pauses(self._assignment))
        wanted.update(find_suspended_partitions(self._assignment.partitions, kept, pressed))
        wanted.update(find_halted_partitions(self._assignment, halted, self._source_of))
        return wanted | dict.fromkeys(beginning, PauseReason.START_UNKNOWN)


def find_halted_partitions(
    places: Iterable[Place], halted: Collection[str], source_of: Callable[[str], str]
) -> dict[Place, PauseReason]:
    """Return the partitions whose source topic is halted (pure).

    Parameters:
        source_of: returns the source of a retry or replay topic, and a source itself.
    """
    if not halted:
        return {}
    return dict.fromkeys((place for place in places if source_of(place[0]) in halted), PauseReason.HALTED)


def find_suspended_partitions(
    partitions: Iterable[Any], suspended: SuspendedHandlers, pressed: Collection[Place] = ()
) -> dict[Place, PauseReason]:
    """Return the partitions that suspended handlers stop (pure).

    A partition stops if all its handlers are suspended, or if some are and their deliveries fill it.

    Parameters:
        pressed: the partitions that pause because enough of their deliveries wait.
    """
    reasons: dict[Place, PauseReason] = {}
    for partition in partitions:
        handlers = getattr(partition, "handlers", ())
        names = suspended.of(handlers)
        if names and len(names) == len({handler.name for handler in handlers}):
            reasons[partition.place] = PauseReason.DEPENDENCIES_DOWN
        elif names and partition.place in pressed:
            reasons[partition.place] = PauseReason.SOME_DEPENDENCIES_DOWN
    return reasons
