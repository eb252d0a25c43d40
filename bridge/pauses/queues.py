"""The Celery queues that deliveries go to: what is in them, and which topics must wait for that."""

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final

from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.handoff.depth import Depth, depths
from bridge.handoff.sizes import processes_of
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.ledger.times import Times
from bridge.metrics import BridgeMetrics
from bridge.pauses import pressure
from bridge.pauses.pressure import Length, Limits
from bridge.pauses.watch import Watch
from bridge.records.place import Place
from bridge.settings import FileSettings

logger = logging.getLogger(__name__)

#: How the reason of each kind of pressure on a queue begins, before the queue's name.
BYTES: Final = "bytes of queue {}"
WORK: Final = "work in queue {}"


class Queues:
    """Which queues are too long, too large, or too much work, since when they were last looked at.

    Attributes:
        depths: what each carries, as last seen.
    """

    def __init__(
        self,
        broker: Broker,
        routes: Routes,
        file: FileSettings,
        metrics: BridgeMetrics,
        ledger: Ledger | None = None,
    ) -> None:
        self._broker, self._routes, self._metrics, self._ledger = broker, routes, metrics, ledger
        self._limits = Limits(file.kafka_pause_above, file.kafka_resume_below)
        self._bytes = Watch(file.kafka_pause_above_bytes, BYTES, "queue {name!r} takes {much:,.0f} bytes of Redis")
        self._work = Watch(file.kafka_pause_above_seconds, WORK, "queue {name!r} holds {much:,.0f} s of work")
        self._long: dict[str, str] = {}
        self.depths: Mapping[str, Depth] = {}

    def look(self) -> None:
        """Ask the broker for the lengths; while it does not answer, all stays as it was."""
        self._quietly(self._look_at_lengths)

    def weigh(self) -> None:
        """See what is in them; while the broker does not answer, all stays as it was."""
        self._quietly(self._look_at_depths)

    def pauses(self, places: Iterable[Place]) -> dict[Place, str]:
        """The partitions that must wait, with the queue that is too long."""
        # Of one with several reasons the first stands.
        labels = {**self._work.paused, **self._bytes.paused, **self._long}
        topics = {topic: labels[queue] for queue in sorted(labels) for topic in self._routes.topics_into(queue)}
        return {place: topics[place[0]] for place in places if place[0] in topics}

    def _quietly(self, look: Callable[[], None]) -> None:
        try:
            look()
        except (HandoffFailed, LedgerUnavailable) as error:
            logger.debug("queues: %s", error)

    def _look_at_lengths(self) -> None:
        ready = self._broker.lengths(self._routes.queues)
        waiting = self._broker.waiting(self._routes.queues)
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

    def _look_at_depths(self) -> None:
        self.depths = depths(self._broker, self._routes.queues)
        self._bytes.see({queue: depth.size for queue, depth in self.depths.items()})
        if self._work.wanted and self._ledger is not None:
            self._work.see(self._work_of(self._ledger))

    def _work_of(self, ledger: Ledger) -> dict[str, float | None]:
        """Seconds of work in each queue; of one in which nothing waits without asking anybody."""
        waits = {queue: depth for queue, depth in self.depths.items() if depth.messages}
        handlers = {*chain.from_iterable(depth.carried for depth in waits.values())}
        known = Times(ledger).known(handlers) if handlers else {}
        costs = {name: found.cost.mean if found.cost is not None else None for name, found in known.items()}
        processes = processes_of(Members(ledger, "workers").living().values()) if waits else {}
        return {
            queue: pressure.work_seconds(depth.carried, costs, processes.get(queue, 0), depth.messages)
            for queue, depth in self.depths.items()
        }
