"""The Celery queues that deliveries go to: how long they are, and which topics must wait for that."""

import logging
from collections.abc import Iterable

from bridge.errors import HandoffFailed
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.metrics import BridgeMetrics
from bridge.pauses import pressure
from bridge.pauses.pressure import Length, Limits
from bridge.records.place import Place

logger = logging.getLogger(__name__)


class Queues:
    """Which queues are too long, since when they were last looked at."""

    def __init__(self, broker: Broker, routes: Routes, limits: Limits, metrics: BridgeMetrics) -> None:
        self._broker, self._routes, self._limits, self._metrics = broker, routes, limits, metrics
        self._long: dict[str, str] = {}

    def look(self) -> None:
        """Ask the broker for the lengths; while it does not answer, all stays as it was."""
        try:
            ready = self._broker.lengths(self._routes.queues)
            waiting = self._broker.waiting(self._routes.queues)
        except HandoffFailed as error:
            logger.debug("queue lengths: %s", error)
            return
        self._metrics.show_lengths(ready)
        self._metrics.show_retries({queue: waiting.get(queue, 0) for queue in ready})
        # What waits for its retry fills the same Redis: a handler that fails for an hour must not take all of it.
        lengths = {queue: Length(count, waiting.get(queue, 0)) for queue, count in ready.items()}
        found = pressure.too_long(lengths, self._limits, self._long)
        for queue in sorted(found - self._long.keys()):
            logger.warning("paused: %s", pressure.reason(queue, lengths[queue], self._limits))
        for queue in sorted(self._long.keys() - found):
            logger.info("resumed: queue %r holds %d messages", queue, lengths[queue].all)
        self._long = {queue: pressure.label(queue, lengths[queue]) for queue in found}

    def pauses(self, places: Iterable[Place]) -> dict[Place, str]:
        """The partitions that must wait, with the queue that is too long."""
        topics = {topic: queue for queue in sorted(self._long) for topic in self._routes.topics_into(queue)}
        return {place: self._long[topics[place[0]]] for place in places if place[0] in topics}
