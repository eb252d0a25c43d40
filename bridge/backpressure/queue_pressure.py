"""The Celery queues that are too long, too large or hold too much work, and the topics that pause for them."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from bridge.backpressure import queue_topic_limits
from bridge.backpressure.queue_topic_limits import LimitWatch, PauseLimits, QueueLength
from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_sizer import count_processes
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason
from bridge.formats.text_forms import format_count
from bridge.handler_routes import Routes
from bridge.ledger import Ledger
from bridge.ledger.group_members import GroupMembers
from bridge.ledger.handler_costs import HandlerCosts
from bridge.settings import FileSettings

logger = logging.getLogger(__name__)


class QueuePressure:
    """The queues that exceeded a limit (length, bytes or work) at the last poll.

    Attributes:
        depths: the contents of each queue at the last poll.
    """

    def __init__(
        self,
        broker: CeleryBroker,
        routes: Routes,
        file: FileSettings,
        metrics: BridgeMetrics,
        ledger: Ledger | None = None,
    ) -> None:
        self._broker, self._routes, self._metrics, self._ledger = broker, routes, metrics, ledger
        self._limits = PauseLimits(file.kafka_pause_above, file.kafka_resume_below)
        self._bytes = LimitWatch(
            file.kafka_pause_above_bytes, PauseReason.QUEUE_BYTES, "queue {name!r} takes {much:,.0f} bytes of Redis"
        )
        self._work = LimitWatch(
            file.kafka_pause_above_seconds, PauseReason.QUEUE_WORK, "queue {name!r} holds {much:,.0f} s of work"
        )
        self._long: dict[str, str] = {}
        self.depths: Mapping[str, QueueDepth] = {}

    def update_lengths(self) -> None:
        """Poll the lengths; keep the last ones if the broker does not respond."""
        self._quietly(self._poll_lengths)

    def update_depths(self) -> None:
        """Poll the contents; keep the last ones if the broker does not respond."""
        self._quietly(self._poll_depths)

    def pauses(self, places: Iterable[Place]) -> dict[Place, str]:
        """Return the partitions that must pause, with the reason."""
        # Each queue has one reason: the length comes before the bytes, the bytes before the work.
        labels = {**self._work.paused, **self._bytes.paused, **self._long}
        if not labels:
            return {}
        topics = {topic: labels[queue] for queue in sorted(labels) for topic in self._routes.topics_into(queue)}
        return {place: topics[place[0]] for place in places if place[0] in topics}

    def _quietly(self, poll: Callable[[], None]) -> None:
        try:
            poll()
        except (HandoffFailed, LedgerUnavailable) as error:
            logger.debug("queues: %s", error)

    def _poll_lengths(self) -> None:
        ready = self._broker.read_lengths(self._routes.queues)
        waiting = self._broker.count_delayed(self._routes.queues)
        self._metrics.show_lengths(ready)
        self._metrics.show_retries({queue: waiting.get(queue, 0) for queue in ready})
        # Retries fill the same Redis: a handler that fails for an hour must not take all of it.
        lengths = {queue: QueueLength(count, waiting.get(queue, 0)) for queue, count in ready.items()}
        too_long = queue_topic_limits.find_long_queues(lengths, self._limits, self._long)
        for queue in sorted(too_long - self._long.keys()):
            logger.warning("paused: %s", queue_topic_limits.explain_long_queue(queue, lengths[queue], self._limits))
        for queue in sorted(self._long.keys() - too_long):
            logger.info("resumed: queue %r holds %s", queue, format_count(lengths[queue].all, "message"))
        self._long = {queue: queue_topic_limits.label_long_queue(queue, lengths[queue]) for queue in too_long}

    def _poll_depths(self) -> None:
        self.depths = read_queue_depths(self._broker, self._routes.queues)
        self._bytes.update_counts({queue: depth.size for queue, depth in self.depths.items()})
        if self._work.wanted and self._ledger is not None:
            self._work.update_counts(self._measure_work(self._ledger))

    def _measure_work(self, ledger: Ledger) -> dict[str, float | None]:
        """Return the seconds of work in each queue; Redis is asked about queues with messages only."""
        backlog = {queue: depth for queue, depth in self.depths.items() if depth.messages}
        handlers = {*chain.from_iterable(depth.carried for depth in backlog.values())}
        known = HandlerCosts(ledger).read_costs(handlers) if handlers else {}
        costs = {name: handler.cost.mean if handler.cost is not None else None for name, handler in known.items()}
        processes = count_processes(GroupMembers(ledger, "workers").living().values()) if backlog else {}
        return {
            queue: queue_topic_limits.estimate_work_seconds(
                depth.carried, costs, processes.get(queue, 0), depth.messages
            )
            for queue, depth in self.depths.items()
        }


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The contents of a queue: its ready messages, and the size of all.

    Attributes:
        messages: messages that wait to be taken.
        carried: deliveries in them, by handler; estimated from samples if there are many.
        size: bytes in Redis, messages that wait for their due time or a gate included; `None`: not known.
    """

    messages: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    size: int | None = None


def read_queue_depths(broker: CeleryBroker, queues: Collection[str]) -> dict[str, QueueDepth]:
    """Return the depth of each queue.

    Raises:
        HandoffFailed: the broker does not respond.
    """
    lengths, weighed = broker.read_lengths(queues), broker.weigh(queues)
    return {
        queue: QueueDepth(
            length,
            estimate_deliveries(length, weighed[queue].samples if queue in weighed else ()),
            _read_size(weighed.get(queue)),
        )
        for queue, length in lengths.items()
    }


def estimate_deliveries(messages: int, samples: Sequence[tuple[str, int]]) -> dict[str, float]:
    """Return the deliveries by handler in so many messages, estimated from samples (pure)."""
    carried: dict[str, float] = {}
    for handler, count in samples:
        carried[handler] = carried.get(handler, 0.0) + count * messages / len(samples)
    return carried


def _read_size(weighed: object) -> int | None:
    return getattr(weighed, "size", None)
