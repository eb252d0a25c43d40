"""Where the waits of a handler's deliveries go: to Celery, or to which retry topic; and what is written there."""

import os
import time
from typing import Any, ClassVar

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable
from bridge.records.failure import Failure
from bridge.records.message import Batch, Delivery
from bridge.settings import Settings
from bridge.topics.names import TopicNames
from bridge.topics.publisher import Clone, Publisher
from bridge.topics.tiers import Waits, possible
from tasks import observing
from tasks.policy_in_force import policy_in_force
from tasks.running import MessageTask

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

    def clone(self, delivery: Delivery, wait: float, failure: Failure | None) -> Clone:
        """What is written to the retry topic for a wait; where the longest is too short, it says until when."""
        tier = self._known().tier(wait)
        if tier is None:
            raise ValueError(f"{delivery}: no retry topic is for a wait of {wait:g} s")
        now = time.time()
        until = int((now + wait) * 1000) if tier.again else None
        return Clone(delivery.parked(), tier.delay, int((now + tier.delay) * 1000), until, failure)

    def topic(self, clone: Clone) -> str:
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
