"""The applier of pauses; limits are in queue_pressure.py, topic_pressure.py and bridge/partitions/partition_limits.py.

It combines what those three decide (which topics have too much in a queue, which partition holds too much) with halted
topics and suspended handlers, and applies it. No other file pauses or resumes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any

from bridge.backpressure.queue_pressure import QueuePressure
from bridge.backpressure.topic_pressure import TopicPressure
from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.suspended_handlers import HaltedHandlers, SuspendedHandlers
from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason
from bridge.kafka.clients import Consumer, TopicPartition
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition_limits import HeldBytesLimit


class PauseApplier:
    """The applier of pauses to the partitions in librdkafka, with the reason of each.

    Parameters:
        source_of: returns the source of a retry or replay topic, and a source itself.
        held: the limit of the bytes that all partitions hold.
    """

    def __init__(
        self,
        assignment: Assignment,
        queues: QueuePressure,
        metrics: BridgeMetrics,
        source_of: Callable[[str], str] = str,
        sources: TopicPressure | None = None,
        held: HeldBytesLimit | None = None,
    ) -> None:
        self._assignment, self._queues, self._metrics = assignment, queues, metrics
        self._sources, self._held = sources, held
        self._source_of = source_of
        self._reasons: dict[Place, str] = {}
        self._shown: dict[Place, str] = {}

    @property
    def reasons(self) -> Mapping[Place, str]:
        """Return the reason of each paused partition."""
        return self._reasons

    def apply(
        self,
        consumer: Consumer,
        beginning: Iterable[Place],
        *,
        blocked: bool,
        halted: Collection[str] = (),
        suspended: SuspendedHandlers = SuspendedHandlers(),  # noqa: B008
    ) -> None:
        """Pause and resume partitions until they are as they should be, newly assigned ones included.

        Parameters:
            beginning: the partitions whose start offset is not known yet.
            blocked: whether nothing can be handed off.
            halted: the source topics whose consumption is halted.
            suspended: the handlers of which nothing is handed off, and where.
        """
        wanted: dict[Place, str] = (
            dict.fromkeys(self._assignment, PauseReason.HANDOFF_BLOCKED)
            if blocked
            else self._wanted(beginning, halted, suspended)
        )
        if wanted.keys() != self._reasons.keys():
            pause = wanted.keys() - self._reasons.keys()
            resume = {place for place in self._reasons.keys() - wanted.keys() if place in self._assignment}
            if pause:
                consumer.pause([TopicPartition(*place) for place in pause])
            if resume:
                consumer.resume([TopicPartition(*place) for place in resume])
        self._reasons = wanted
        # Compared with what is shown: a partition that was given up is in neither.
        if wanted != self._shown:
            self._metrics.show_paused(wanted)
            self._shown = {**wanted}

    def begin(self, consumer: Consumer, places: Collection[Place]) -> None:
        """Pause newly assigned partitions until their start offset is known."""
        self._reasons |= dict.fromkeys(places, PauseReason.START_UNKNOWN)
        consumer.pause([TopicPartition(*place) for place in places])

    def forget(self, places: Iterable[Place]) -> None:
        """Forget pauses, so that they are set anew: librdkafka keeps them over a revocation (issue 1849)."""
        for place in places:
            self._reasons.pop(place, None)

    def _wanted(
        self, beginning: Iterable[Place], halted: Collection[str], suspended: SuspendedHandlers
    ) -> dict[Place, str]:
        busy = self._assignment.busy
        share = inf if self._held is None else self._held.find_share(partition.held_bytes for partition in busy)
        wanted: dict[Place, str] = {
            partition.place: reason for partition in busy if (reason := partition.pressure(share)) is not None
        }
        pressed = frozenset(wanted)
        wanted.update(self._queues.pauses(self._assignment))
        if self._sources is not None:
            wanted.update(self._sources.pauses(self._assignment))
        wanted.update(find_suspended_partitions(self._assignment.partitions, suspended, pressed))
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
    """Return the partitions that suspended or halted handlers stop (pure).

    A partition stops if all its handlers are suspended, or if some are and their deliveries fill it. It says of a
    pressed one that a halt is the cause, if it would go on without the deliveries of the halted handlers and keys.

    Parameters:
        pressed: the partitions that pause because enough of their deliveries wait.
    """
    reasons: dict[Place, PauseReason] = {}
    if not (suspended.down or suspended.full or any(suspended.by_halt)):
        return reasons
    for partition in partitions:
        handlers = getattr(partition, "handlers", ())
        topic = partition.place[0]
        names = suspended.find_suspended(handlers, topic)
        halted = any(suspended.is_halted(name, topic) for name in names)
        is_limited = names <= suspended.limited
        if names and len(names) == len({handler.name for handler in handlers}):
            down = PauseReason.LIMIT_FULL if is_limited else PauseReason.DEPENDENCIES_DOWN
            reasons[partition.place] = PauseReason.HALTED if halted else down
        elif names and partition.place in pressed:
            down = PauseReason.LIMIT_FULL if is_limited else PauseReason.SOME_DEPENDENCIES_DOWN
            reasons[partition.place] = PauseReason.SOME_HALTED if halted else down
        elif partition.place in pressed and _is_pressed_by_halt(partition, suspended.by_halt):
            reasons[partition.place] = PauseReason.SOME_HALTED
    return reasons


def _is_pressed_by_halt(partition: Any, by_halt: HaltedHandlers) -> bool:
    halted, keys = by_halt.find_halted(partition.source), by_halt.find_keys(partition.source)
    return bool(halted or keys) and not partition.is_pressed_without(halted, keys)
