"""Where the waits of a handler's deliveries go: to Celery, or to which retry topic; and what is written there."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed
from bridge.records.failure import Failure
from bridge.records.message import Batch, Delivery
from bridge.settings import Settings
from bridge.topics.names import TopicNames, tier
from bridge.topics.publisher import Clone, Publisher
from bridge.topics.tiers import Waits, possible
from tasks import metrics, observing, redis_clock, telling
from tasks.policy_in_force import policy_in_force
from tasks.running import MessageTask
from tasks.settling import Settling

logger = observing.log(__name__)


class Parking:
    """Where the waits of one batch go.

    Parameters:
        batch: of no group where it was not a bridge that handed it off: it is not parked.
    """

    _chosen: ClassVar[dict[tuple[int, int], tuple[Celery, Settings]]] = {}

    def __init__(self, task: MessageTask[..., Any], batch: Batch) -> None:
        self._task, self._batch = task, batch
        self._waits: Waits | None = None

    @property
    def park_after(self) -> float:
        """Seconds from which on a wait goes to a retry topic."""
        return self._settings().file.kafka_park_after if self._batch.group else float("inf")

    @property
    def delays(self) -> tuple[int, ...]:
        """Of the tiers that this handler's deliveries may lie in, ascending."""
        file = self._settings().file
        policy = policy_in_force(self._task, self._batch.group)
        return possible(policy.delays, file.kafka_park_after, file.kafka_retry_tiers)

    def parks(self, wait: float) -> bool:
        """Whether a wait is one for a retry topic, and there is one for it."""
        return wait >= self.park_after and bool(self._known().delays)

    def real(self, wait: float) -> float:
        """Seconds after which a retry really starts that is to start after `wait`."""
        return self._known().real(wait) if wait >= self.park_after else wait

    def write(
        self, waits: Sequence[tuple[float, Delivery]], failures: Mapping[int, Failure], settling: Settling
    ) -> list[tuple[Clone, PublishFailed | None]]:
        """Park deliveries, each for its wait in seconds; return each as it was written, and why Kafka did not take it.

        Parameters:
            failures: for which they are retried, by their offsets.

        Raises:
            LedgerUnavailable: they are written, and the ledger did not take the marks.
        """
        clones = [self._clone(delivery, delay, failures.get(delivery.message.offset)) for delay, delivery in waits]
        return list(zip(clones, settling.park(clones, self.delays), strict=True))

    def tell(self, clone: Clone) -> None:
        """Tell of one that is parked."""
        metrics.parked(self._task.name, self._batch.group, tier(clone.delay))
        telling.parked(clone.delivery, self._topic(clone), clone.until or clone.due, clone.failure)

    def _clone(self, delivery: Delivery, wait: float, failure: Failure | None) -> Clone:
        """What is written to the retry topic for a wait; where the longest is too short, it says until when."""
        found = self._known().tier(wait)
        if found is None:
            raise ValueError(f"{delivery}: no retry topic is for a wait of {wait:g} s")
        now = time.time() - redis_clock.ahead_of_redis(self._task.app, self._batch)
        until = int((now + wait) * 1000) if found.again else None
        return Clone(delivery.parked(), found.delay, int((now + found.delay) * 1000), until, failure)

    def _topic(self, clone: Clone) -> str:
        """The retry topic of a clone."""
        names = TopicNames.of(self._settings().of_group(self._batch.group))
        return names.retry(self._batch.topic, clone.delay)

    def _known(self) -> Waits:
        """Asked once a batch, and only when something is to wait so long."""
        if self._waits is None:
            delays = self.delays
            try:
                usable = Publisher.of(self._task.app).retries.usable(self._batch.topic, delays, self._batch.group)
            except KafkaUnavailable as error:
                # It will be tried, and if Kafka does not take it, tried again.
                logger.debug("%s", error)
                usable = delays
            self._waits = Waits(self.park_after, usable)
        return self._waits

    def _settings(self) -> Settings:
        # Not those of the process that this one was forked from, which may be an app with the same address.
        key = (os.getpid(), id(self._task.app))
        if key not in self._chosen:
            self._chosen[key] = (self._task.app, settings.load(self._task.app, os.environ))
        return self._chosen[key][1]
