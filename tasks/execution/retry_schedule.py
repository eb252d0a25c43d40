"""The deliveries of a batch that run later: which wait goes to a Kafka retry topic and which to Celery, what is due
together, and what may not overtake what its order holds back.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.formats.delivery import Batch, Delivery
from bridge.formats.failure import Failure
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.kafka.retry_tiers import TierWaits, usable_tiers
from bridge.kafka.topic_names import TopicNames, format_delay
from bridge.settings import Settings
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution import delivery_log, process_loss, redis_clock
from tasks.execution.batch_progress import BatchState
from tasks.execution.message_resend import publish_delay, retry_batch, send_on
from tasks.execution.outgoing_publication import UnsentMessages
from tasks.execution.settlement import Settlement
from tasks.policy.effective_decisions import find_effective_policy
from tasks.worker import worker_metrics
from tasks.worker.delivery_cost import DeliveryLaps


class DeliveryWait(NamedTuple):
    """For how long deliveries are put off, and where.

    Attributes:
        delay: seconds.
        parked: whether they wait in a retry topic; else in Celery.
    """

    delay: float
    parked: bool = False


class LaterDeliveries:
    """The deliveries of one batch that run again, or have not run yet when its time is over (pure).

    Parameters:
        order: "key" or "partition" where what comes after a delivery waits for it, else `None`.
    """

    def __init__(self, order: str | None) -> None:
        self._order = order
        self._put_off: dict[DeliveryWait, list[Delivery]] = {}
        self._held_back: dict[bytes | None, DeliveryWait] = {}

    def again(self, delivery: Delivery, wait: DeliveryWait) -> None:
        """It runs again after that, and what comes after it in its order no sooner."""
        if self._order is not None:
            self._held_back[self._lane(delivery)] = wait
        self.put_off(delivery, wait)

    def put_off(self, delivery: Delivery, wait: DeliveryWait) -> None:
        """It runs after that."""
        self._put_off.setdefault(wait, []).append(delivery)

    def wait_of(self, delivery: Delivery) -> DeliveryWait | None:
        """For how long the one before it in its order is put off, if there is one."""
        if not self._held_back or self._is_free(delivery):
            return None
        return self._held_back.get(self._lane(delivery))

    def take_parked(self) -> list[tuple[float, Delivery]]:
        """What waits in retry topics, with its delay, each behind what it must not overtake; it is forgotten here."""
        waits = [wait for wait in self._put_off if wait.parked]
        return [(wait.delay, delivery) for wait in waits for delivery in self._in_line(self._put_off.pop(wait))]

    def take(self) -> Iterator[tuple[float, list[Delivery]]]:
        """What is due together in Celery, with its delay; each is forgotten when the next is asked for."""
        for wait in [wait for wait in self._put_off if not wait.parked]:
            yield wait.delay, self._put_off[wait]
            del self._put_off[wait]

    def _in_line(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Each says which one it comes after: apart from that one, it may come back before it has ended."""
        last: dict[bytes | None, int] = {}
        for delivery in deliveries:
            before = last.get(self._lane(delivery)) if self._order is not None and not self._is_free(delivery) else None
            yield delivery if before is None else replace(delivery, after=before)
            last[self._lane(delivery)] = delivery.message.offset

    def _is_free(self, delivery: Delivery) -> bool:
        """Messages without a key are free of each other."""
        return self._order == "key" and delivery.message.key is None

    def _lane(self, delivery: Delivery) -> bytes | None:
        return delivery.message.key if self._order == "key" else None


logger = logs.harmless_logger(__name__)


class RetryPlacement:
    """Where the waits of one batch go.

    Parameters:
        batch: of no group where it was not a bridge that handed it off: it is not parked.
    """

    _chosen: ClassVar[dict[tuple[int, int], tuple[Celery, Settings]]] = {}

    def __init__(self, task: MessageTask[..., Any], batch: Batch) -> None:
        self._task, self._batch = task, batch
        self._waits: TierWaits | None = None

    @property
    def park_after(self) -> float:
        """Seconds from which on a wait goes to a retry topic."""
        return self._settings().file.kafka_park_after if self._batch.group else float("inf")

    @property
    def delays(self) -> tuple[int, ...]:
        """Of the tiers that this handler's deliveries may lie in, ascending."""
        file = self._settings().file
        policy = find_effective_policy(self._task, self._batch.group)
        return usable_tiers(policy.delays, file.kafka_park_after, file.kafka_retry_tiers)

    def parks(self, wait: float) -> bool:
        """Whether a wait is one for a retry topic, and there is one for it."""
        return wait >= self.park_after and bool(self._known().delays)

    def real(self, wait: float) -> float:
        """Seconds after which a retry really starts that is to start after `wait`."""
        return self._known().real(wait) if wait >= self.park_after else wait

    def write(
        self, waits: Sequence[tuple[float, Delivery]], failures: Mapping[int, Failure], settlement: Settlement
    ) -> list[tuple[ParkRequest, PublishFailed | None]]:
        """Park deliveries, each for its wait in seconds; return each as it was written, and why Kafka did not take it.

        Parameters:
            failures: for which they are retried, by their offsets.

        Raises:
            LedgerUnavailable: they are written, and the ledger did not take the marks.
        """
        clones = [self._clone(delivery, delay, failures.get(delivery.message.offset)) for delay, delivery in waits]
        return list(zip(clones, settlement.park(clones, self.delays), strict=True))

    def tell(self, clone: ParkRequest) -> None:
        """Tell of one that is parked."""
        worker_metrics.count_parked(self._task.name, self._batch.group, format_delay(clone.delay))
        delivery_log.log_parked(clone.delivery, self._topic(clone), clone.until or clone.due, clone.failure)

    def _clone(self, delivery: Delivery, wait: float, failure: Failure | None) -> ParkRequest:
        """What is written to the retry topic for a wait; where the longest is too short, it says until when."""
        found = self._known().tier(wait)
        if found is None:
            raise ValueError(f"{delivery}: no retry topic is for a wait of {wait:g} s")
        now = time.time() - redis_clock.measure_clock_lead(self._task.app, self._batch)
        until = int((now + wait) * 1000) if found.again else None
        return ParkRequest(delivery.parked(), found.delay, int((now + found.delay) * 1000), until, failure)

    def _topic(self, clone: ParkRequest) -> str:
        """The retry topic of a clone."""
        names = TopicNames.of(self._settings().of_group(self._batch.group))
        return names.retry(self._batch.topic, clone.delay)

    def _known(self) -> TierWaits:
        """Asked once a batch, and only when something is to wait so long."""
        if self._waits is None:
            delays = self.delays
            try:
                usable = Publisher.of(self._task.app).retries.usable(self._batch.topic, delays, self._batch.group)
            except KafkaUnavailable as error:
                # It will be tried, and if Kafka does not take it, tried again.
                logger.debug("%s", error)
                usable = delays
            self._waits = TierWaits(self.park_after, usable)
        return self._waits

    def _settings(self) -> Settings:
        # Not those of the process that this one was forked from, which may be an app with the same address.
        key = (os.getpid(), id(self._task.app))
        if key not in self._chosen:
            self._chosen[key] = (self._task.app, settings.load(self._task.app, os.environ))
        return self._chosen[key][1]


# As where the batch runs: one who reads the logs of that reads these.
logger = logs.harmless_logger("tasks.execution.batch_run")

#: Seconds that a part of a batch may take whose time was over.
PART_WITHIN: Final = 0.05
#: Seconds, at the most, after which it is looked again whether what comes before a delivery in its order has ended.
BEHIND_WITHIN: Final = 60.0
#: Retries that travel together, at the most, where nobody has said how large a batch is to be.
MOST_TOGETHER: Final = 500
#: What a message has cost that has cost nothing.
NO_PAST: Final[Mapping[str, Any]] = MappingProxyType({})


class RetrySchedule:
    """What waits of one batch.

    Parameters:
        laps: what its deliveries take.
    """

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, state: BatchState, settlement: Settlement, laps: DeliveryLaps
    ) -> None:
        self._task, self._batch, self._state, self._settlement = task, batch, state, settlement
        self._laps = laps
        self._alone = len(batch.deliveries) == 1
        self._later = LaterDeliveries(batch.order)
        self._failures: dict[int, Failure] = {}
        self.parking = RetryPlacement(task, batch)

    def is_held_back(self, delivery: Delivery) -> bool:
        """Whether one before it in its order runs again first; then it waits behind that one."""
        wait = self._later.wait_of(delivery)
        if wait is not None:
            self._later.put_off(delivery, wait)
        return wait is not None

    def put_off(self, delivery: Delivery, delay: float, words: str, failure: Failure | None = None) -> None:
        """It runs later: by a retry topic, where one is for so long a wait; else it waits in Celery."""
        if not self.parking.parks(delay):
            if failure is not None:
                delivery_log.log_retry(delivery, delay, failure)
            self.again(delivery, delay, words)
            return
        if failure is not None:
            self._failures[delivery.message.offset] = failure
        self._state.set(replace(delivery, due=time.time() + delay))
        self._later.again(replace(delivery, due=None), DeliveryWait(delay, parked=True))

    def again(self, delivery: Delivery, delay: float, words: str) -> None:
        """It waits in Celery.

        Raises:
            Retry: it is the only one of its message, which is sent again.
        """
        self._state.set(replace(delivery, due=time.time() + delay))
        if self._alone:
            retry_batch(self._task, self._batch.holding([replace(delivery, due=None)]), delay, words)
        self._later.again(replace(delivery, due=None), DeliveryWait(delay))

    def unsent(self, unsent: UnsentMessages, failed: PublishFailed) -> None:
        """Kafka did not take what its handler sends, which has succeeded: that alone is tried again, in Celery."""
        delivery = unsent.delivery
        delay = publish_delay(delivery.publish_tries)
        worker_metrics.count_retry(self._task.name, self._batch.group, "unsent")
        delivery_log.log_unsent(delivery, delay, failed)
        self.again(replace(unsent.again, publish_tries=delivery.publish_tries + 1), delay, str(failed))

    def stay_behind(self, delivery: Delivery) -> None:
        """The one before it in its order, behind which it was parked, has not ended: so it waits, ever longer."""
        delay = min(2.0**delivery.publish_tries, BEHIND_WITHIN)
        again = replace(delivery, publish_tries=delivery.publish_tries + 1)
        self.put_off(again, delay, f"offset {delivery.after}, before it in its order, has not ended")

    def rest(self, todo: Sequence[Delivery]) -> None:
        """The time of this batch is over: what is left goes back to the queue as a batch of its own.

        Where nobody has said how large a batch is to be, as several: others may be idle.
        """
        if self._task.batch == "auto" and self._batch.order is None:
            most = max(1, int(PART_WITHIN * self._laps.pace))
            for start in range(0, len(todo), most):
                self._send_on(todo[start : start + most], 0)
            for delivery in todo:
                self._state.ends.add("put back", delivery.message.offset)
            return
        for delivery in todo:
            self._later.put_off(delivery, self._later.wait_of(delivery) or DeliveryWait(0.0))

    def break_up(self, todo: Sequence[Delivery]) -> str:
        """A process was lost with this batch: the one that was running runs alone, or each where that is not known."""
        parts = process_loss.split_after_loss(todo, self._task.request.headers or {})
        logger.warning("%s: a process was lost with it: it goes on in %d parts.", str(self._batch), len(parts))
        for deliveries, past in parts:
            self._send_on(deliveries, 0, past)
        return f"broken up into {len(parts)}"

    def send(self) -> list[ParkRequest]:
        """Park, or send on, what runs later: what is due together goes together. Return what was parked."""
        parked = self._park()
        for delay, deliveries in self._later.take():
            self._send_on(deliveries, delay)
            for delivery in deliveries:
                self._state.ends.add("again" if delay else "put back", delivery.message.offset)
        return parked

    def _park(self) -> list[ParkRequest]:
        """Write what waits in retry topics there; what Kafka does not take stays in Celery, and spends nothing."""
        waits = self._later.take_parked()
        parked = []
        written = self.parking.write(waits, self._failures, self._settlement) if waits else []
        for (delay, delivery), (clone, failed) in zip(waits, written, strict=True):
            if failed is None:
                parked.append(clone)
                self._state.gone(delivery, "parked")
                self.parking.tell(clone)
            else:
                self._stay_in_celery(delivery, delay, failed)
        return parked

    def _stay_in_celery(self, delivery: Delivery, delay: float, failed: PublishFailed) -> None:
        """Kafka did not take it: it is tried again later. What is too large for its topic waits in Celery whole."""
        pause = delay if isinstance(failed, RecordTooLarge) else min(delay, publish_delay(delivery.publish_tries))
        delivery_log.log_unparked(delivery, pause, failed)
        worker_metrics.count_retry(self._task.name, self._batch.group, "not_parked")
        # What must come before it may not have been parked either, and is put off likewise.
        due = self._state.now(delivery).due
        again = replace(delivery, due=due, publish_tries=delivery.publish_tries + 1)
        self._state.set(again)
        if self._alone:
            retry_batch(self._task, self._batch.holding([again]), pause, str(failed))
        self._later.put_off(again, DeliveryWait(pause))

    def _send_on(self, deliveries: Sequence[Delivery], delay: float, past: Mapping[str, Any] = NO_PAST) -> None:
        task = self._task
        batch = self._batch.holding(deliveries)
        send_on(task.app, batch, delay, task.request.delivery_info or {}, self._most_together(), past)
        self._state.sent_on(deliveries)

    def _most_together(self) -> int:
        """How many deliveries one message may carry to which retries of this batch are joined."""
        if self._task.batch != "auto":
            return self._task.batch
        return max(len(self._batch.deliveries), int(min(MOST_TOGETHER, PART_WITHIN * self._laps.pace)))
