"""The Celery queues that are too long, too large or hold too much work, and the topics that pause for them.

Also the limits of such a pause: above which amount it begins, below which it ends, and the log lines about both.
topic_pressure.py has the limits of topics themselves, by the same `LimitWatch`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.batch_sizer import count_processes
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.pause_reasons import PauseReason, name_pause_reason
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
        too_long = find_long_queues(lengths, self._limits, self._long)
        for queue in sorted(too_long - self._long.keys()):
            logger.warning("paused: %s", explain_long_queue(queue, lengths[queue], self._limits))
        for queue in sorted(self._long.keys() - too_long):
            logger.info("resumed: queue %r holds %s", queue, format_count(lengths[queue].all, "message"))
        self._long = {queue: label_long_queue(queue, lengths[queue]) for queue in too_long}

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
            queue: estimate_work_seconds(depth.carried, costs, processes.get(queue, 0), depth.messages)
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


@dataclass(frozen=True, slots=True)
class PauseLimits:
    """The limits of a pause: paused above `high`, resumed below `low`."""

    high: float
    low: float

    @classmethod
    def half(cls, high: float) -> "PauseLimits":
        """Return limits that resume below half of `high`."""
        return cls(high, high / 2)


class QueueLength(NamedTuple):
    """The messages of a Celery queue: ready to run, and waiting in the broker until they are due."""

    ready: int
    waiting: int = 0

    @property
    def all(self) -> int:
        """Return the number of all messages: each takes memory of the broker."""
        return self.ready + self.waiting


def find_long_queues(
    lengths: Mapping[str, QueueLength], limits: PauseLimits, before: Collection[str]
) -> frozenset[str]:
    """Return the queues whose topics must be paused.

    Between the limits a queue stays as it was, because each pause throws away what librdkafka has fetched.

    Parameters:
        lengths: by queue.
        before: the queues that were too long at the last poll.
    """
    return find_over_limit({queue: length.all for queue, length in lengths.items()}, limits, {*before} & lengths.keys())


def find_over_limit(
    amounts: Mapping[str, float | None], limits: PauseLimits, before: Collection[str]
) -> frozenset[str]:
    """Return the names whose amount exceeds the limits.

    Parameters:
        amounts: by name; one that is `None` or missing is unknown, and its name stays as it was.
        before: the names that exceeded the limits at the last poll.
    """
    known = {name: amount for name, amount in amounts.items() if amount is not None}
    unknown = {name for name in before if name not in known}
    return frozenset(unknown) | {
        name for name, amount in known.items() if amount > limits.high or (name in before and amount >= limits.low)
    }


def estimate_work_seconds(
    carried: Mapping[str, float], costs: Mapping[str, float | None], processes: int, messages: int
) -> float | None:
    """Return the seconds that the processes of a queue need for what waits there; `None` if unknown.

    Parameters:
        carried: waiting deliveries, by handler.
        costs: measured seconds that a delivery takes a process, by handler.
        processes: processes that consume the queue; with none, its speed is unknown.
        messages: waiting messages.
    """
    if not messages:
        return 0.0
    work = [(count, costs.get(handler)) for handler, count in carried.items()]
    if not processes or not work or any(cost is None for _, cost in work):
        return None
    return sum(count * (cost or 0.0) for count, cost in work) / processes


def explain_long_queue(queue: str, length: QueueLength, limits: PauseLimits) -> str:
    """Return why the topics of a queue are paused, for the log."""
    retries = f", {length.waiting} of them waiting for their retry" if length.waiting else ""
    marks = f"(paused above {limits.high}, resumed below {limits.low})"
    return f"queue {queue!r} holds {format_count(length.all, 'message')}{retries} {marks}"


def label_long_queue(queue: str, length: QueueLength) -> str:
    """Return why the topics of a queue are paused, for status and metrics: the words do not change with the length."""
    reason = PauseReason.RETRIES_LONG if length.waiting > length.ready else PauseReason.QUEUE_LONG
    return name_pause_reason(reason, queue)


class LimitWatch:
    """The watch over one amount of each queue or topic, with its limit.

    Parameters:
        high: limit above which they pause; they resume below half of it. `None`: no limit.
        reason: for status and metrics, before the name of the queue or topic.
        words: the amount, for the log, with `{name}` and `{much}`.

    Attributes:
        paused: the reason of each name that exceeds its limit.
    """

    def __init__(self, high: float | None, reason: PauseReason, words: str) -> None:
        self._limits = None if high is None else PauseLimits.half(high)
        self._reason, self._words = reason, words
        self.paused: dict[str, str] = {}

    @property
    def wanted(self) -> bool:
        """Return whether there is a limit."""
        return self._limits is not None

    def update_counts(self, amounts: Mapping[str, float | None]) -> None:
        """Take in the amounts; a name whose amount is unknown (`None`) stays as it was."""
        if self._limits is None:
            return
        exceeding = find_over_limit(amounts, self._limits, self.paused)
        marks = f"(paused above {self._limits.high:,g}, resumed below {self._limits.low:,g})"
        for name in sorted(exceeding - self.paused.keys()):
            logger.warning("paused: %s %s", self._format(name, amounts), marks)
        for name in sorted(self.paused.keys() - exceeding):
            logger.info("resumed: %s", self._format(name, amounts))
        self.paused = {name: name_pause_reason(self._reason, name) for name in exceeding}

    def _format(self, name: str, amounts: Mapping[str, float | None]) -> str:
        return self._words.format(name=name, much=amounts[name] or 0)
