"""The schedule of a batch's deliveries that run later: it parks each in a retry topic, or sends it on through Celery.

It is also decided here which are due together, and which must not overtake others in their order.
bridge/kafka/retry_placement.py decides the place of a wait: Celery or a retry topic (`TierWaits`), and which one.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

from celery import Celery

from bridge import settings
from bridge.errors import KafkaUnavailable, PublishFailed, RecordTooLarge
from bridge.formats.delivery import Batch, Delivery
from bridge.formats.failure import Failure
from bridge.kafka.publisher import ParkRequest, Publisher
from bridge.kafka.retry_placement import TierWaits, usable_tiers
from bridge.kafka.topic_names import TopicNames, format_delay
from bridge.settings import Settings
from lossless.backoff import Backoff
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution import delivery_log, process_loss, redis_clock
from tasks.execution.batch_progress import BatchState
from tasks.execution.batch_telemetry import BatchTelemetry
from tasks.execution.later_deliveries import DeliveryWait, LaterDeliveries
from tasks.execution.message_resend import PUBLISH_BACKOFF, TOGETHER, retry_batch, send_on
from tasks.execution.outgoing_publication import UnsentMessages
from tasks.execution.settlement import Settlement
from tasks.policy.effective_decisions import find_effective_policy
from tasks.worker import worker_metrics

# The logger of the batch's run, whose readers need these lines.
logger = logs.harmless_logger("tasks.execution.batch_run")


class RetryParker:
    """The writer of a batch's deliveries to retry topics; bridge/kafka/retry_placement.py chooses the topic.

    Parameters:
        batch: without a group if no bridge handed it off: it is not parked.
    """

    _chosen: ClassVar[dict[tuple[int, int], tuple[Celery, Settings]]] = {}

    def __init__(self, task: MessageTask[..., Any], batch: Batch) -> None:
        self._task, self._batch = task, batch
        self._waits: TierWaits | None = None

    @property
    def park_after(self) -> float:
        """The seconds from which on a wait goes to a retry topic."""
        return self._settings().file.kafka_park_after if self._batch.group else float("inf")

    @property
    def delays(self) -> tuple[int, ...]:
        """The delays of the retry topics that this handler uses, ascending."""
        file = self._settings().file
        policy = find_effective_policy(self._task, self._batch.group)
        return usable_tiers(policy.delays, file.kafka_park_after, file.kafka_retry_tiers)

    def parks(self, wait: float) -> bool:
        """Return whether a wait is for a retry topic, and there is a topic for it."""
        return self._find_waits(wait).tier(wait) is not None

    def real(self, wait: float) -> float:
        """Return the seconds after which a retry with this wait really starts, by the delay of its retry topic."""
        return self._find_waits(wait).real(wait)

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

    def log_parked(self, clone: ParkRequest) -> None:
        """Log and count a parked delivery."""
        worker_metrics.count_parked(self._task.name, self._batch.group, format_delay(clone.delay))
        delivery_log.log_parked(clone.delivery, self._topic(clone), clone.until or clone.due, clone.failure)

    def _clone(self, delivery: Delivery, wait: float, failure: Failure | None) -> ParkRequest:
        """Return the record for a retry topic; for a wait longer than the longest delay it holds the due time too."""
        found = self._find_waits(wait).tier(wait)
        if found is None:
            raise ValueError(f"{delivery}: no retry topic for a wait of {wait:g} s")
        now = time.time() - redis_clock.measure_clock_lead(self._task.app, self._batch)
        until = int((now + wait) * 1000) if found.again else None
        return ParkRequest(delivery.parked(), found.delay, int((now + found.delay) * 1000), until, failure)

    def _topic(self, clone: ParkRequest) -> str:
        """Return the retry topic of a clone."""
        names = TopicNames.from_settings(self._settings().of_group(self._batch.group))
        return names.retry(self._batch.topic, clone.delay)

    def _find_waits(self, wait: float) -> TierWaits:
        """Return the waits of the usable retry topics, read once a batch and only for a wait that long."""
        if self._waits is None:
            if not (celery_only := TierWaits(self.park_after)).is_parked(wait):
                return celery_only
            delays = self.delays
            try:
                usable = Publisher.get_publisher(self._task.app).retries.usable(
                    self._batch.topic, delays, self._batch.group
                )
            except KafkaUnavailable as error:
                # Parking is tried all the same; if Kafka does not take it, it is retried.
                logger.debug("%s", error)
                usable = delays
            self._waits = TierWaits(self.park_after, usable)
        return self._waits

    def _settings(self) -> Settings:
        # By process and app: after a fork another app may have the same address.
        key = (os.getpid(), id(self._task.app))
        if key not in self._chosen:
            self._chosen[key] = (self._task.app, settings.load(self._task.app, os.environ))
        return self._chosen[key][1]


#: Seconds that each part of an overdue batch may take.
PART_WITHIN: Final = 0.05
#: Seconds until a delivery's predecessor in its order is checked again.
BEHIND_BACKOFF: Final = Backoff(first=1.0, most=60.0)
#: Seconds until a delivery's name is claimed again while another record has it: that one's run may take long.
NAME_BACKOFF: Final = Backoff(first=0.5, most=10.0)
#: The most retries in one message if the handler sets no batch size.
MOST_TOGETHER: Final = 500
#: Seconds from which on a delivery that waits for its limit is far from its turn, and will most likely wait again; the
#: most of these in one message, which ask in one step.
FAR_FROM_TURN: Final = 5.0
MOST_FAR: Final = 50
#: The loss headers of a message without losses.
NO_PAST: Final[Mapping[str, Any]] = MappingProxyType({})


class RetrySchedule:
    """The schedule of one batch's deliveries that run later."""

    def __init__(
        self,
        task: MessageTask[..., Any],
        batch: Batch,
        state: BatchState,
        settlement: Settlement,
        telemetry: BatchTelemetry,
    ) -> None:
        self._task, self._batch, self._state, self._settlement = task, batch, state, settlement
        self._telemetry = telemetry
        self._is_single = len(batch.deliveries) == 1
        self._later = LaterDeliveries(batch.order)
        self._failures: dict[int, Failure] = {}
        self.parking = RetryParker(task, batch)
        #: The seconds that a run takes, if deliveries wait for their limit.
        self._takes: float | None = None

    def is_held_back(self, delivery: Delivery) -> bool:
        """Return whether a delivery must wait for one before it in its order; if so, put it off."""
        wait = self._later.wait_of(delivery)
        if wait is not None:
            self._later.put_off(delivery, wait)
        return wait is not None

    def hold_behind(self, delivery: Delivery) -> None:
        """Let the deliveries behind a dead one in its order wait until it is replayed or discarded."""
        self._later.hold_behind(delivery, DeliveryWait(BEHIND_BACKOFF.compute_pause(0)))

    def hold(self, delivery: Delivery, gate: str) -> None:
        """Let a delivery wait until its key is resumed, behind those before it in its order."""
        if not self.is_held_back(delivery):
            self._later.again(delivery, DeliveryWait(0.0, gate=gate))

    def put_off(self, delivery: Delivery, delay: float, words: str, failure: Failure | None = None) -> None:
        """Retry a delivery after a delay: through a retry topic if there is one for it, else in Celery."""
        if not self.parking.parks(delay):
            if failure is not None:
                delivery_log.log_retry(delivery, delay, failure)
            self.retry_in_celery(delivery, delay, words)
            return
        if failure is not None:
            self._failures[delivery.message.offset] = failure
        self._state.update(delivery.changed(due=time.time() + delay))
        again = delivery if delivery.due is None else delivery.changed(due=None)
        self._later.again(again, DeliveryWait(delay, parked=True))

    def retry_in_celery(self, delivery: Delivery, delay: float, words: str) -> None:
        """Retry a delivery after a delay in Celery.

        Raises:
            Retry: it is the only delivery of its message, which was sent again.
        """
        again = delivery if delivery.due is None else delivery.changed(due=None)
        self._state.update(delivery.changed(due=time.time() + delay))
        if self._is_single:
            retry_batch(self._task, self._batch.holding([again]), delay, words)
        self._later.again(again, DeliveryWait(delay))

    def retry_publication(self, unsent: UnsentMessages, failed: PublishFailed) -> None:
        """Retry in Celery the messages of a handler that has succeeded, which Kafka did not take."""
        delivery = unsent.delivery
        delay = PUBLISH_BACKOFF.compute_pause(delivery.publish_tries)
        self._telemetry.count_retry("unsent")
        delivery_log.log_unsent(delivery, delay, failed)
        self.retry_in_celery(replace(unsent.again, publish_tries=delivery.publish_tries + 1), delay, str(failed))

    def wait_for_predecessor(self, delivery: Delivery) -> None:
        """Put off a delivery whose predecessor in its order has not ended, with growing pauses."""
        delay = BEHIND_BACKOFF.compute_pause(delivery.publish_tries)
        again = replace(delivery, publish_tries=delivery.publish_tries + 1)
        self.put_off(again, delay, f"offset {delivery.after}, which is before it in its order, has not ended")

    def wait_for_name(self, delivery: Delivery, record: str) -> None:
        """Put off a delivery while the record that has its unique name runs, with growing pauses."""
        delay = NAME_BACKOFF.compute_pause(delivery.publish_tries)
        again = replace(delivery, publish_tries=delivery.publish_tries + 1)
        self.retry_in_celery(again, delay, f"{record}, which has the same unique name, is running")

    def wait_for_limit(self, delivery: Delivery, wait: float, takes: float) -> None:
        """Put off a delivery until its turn in the limit of its handler: in Celery, also for long.

        Parameters:
            takes: seconds that a run takes: as many wait in one message as run within a moment.
        """
        self._takes = takes
        delay = math.ceil(wait / TOGETHER) * TOGETHER if takes < PART_WITHIN else wait
        self._state.update(replace(delivery, due=time.time() + delay))
        self._later.again(replace(delivery, due=None), DeliveryWait(delay))

    def put_back(self, todo: Sequence[Delivery], at_once: int = 1) -> None:
        """Put the rest of a batch whose time is over back into the queue, as a batch of its own.

        With an automatic batch size the rest goes back in several batches, for idle workers.

        Parameters:
            at_once: how many run side by side; those that do wait for no others of their batch.
        """
        if self._batch.order is None and (self._task.batch == "auto" or at_once > 1):
            most = max(at_once, int(min(len(todo), PART_WITHIN * self._telemetry.laps.pace)))
            most = most if self._task.batch == "auto" else len(todo)
            for start in range(0, len(todo), most):
                self._send_on(todo[start : start + most], 0)
            for delivery in todo:
                self._state.ends.add("put back", delivery.message.offset)
            return
        for delivery in todo:
            self._later.put_off(delivery, self._later.wait_of(delivery) or DeliveryWait(0.0))

    def break_up(self, todo: Sequence[Delivery]) -> str:
        """Split a batch after a lost process: the delivery that was running runs alone, or each if that is unknown."""
        parts = process_loss.split_after_loss(todo, self._task.request.headers or {})
        logger.warning("%s: a process was lost with it: it is split into %d parts.", str(self._batch), len(parts))
        for deliveries, past in parts:
            self._send_on(deliveries, 0, past)
        return f"broken up into {len(parts)}"

    def send(self) -> list[ParkRequest]:
        """Park or send on the deliveries that run later, those due together in one message; return the parked ones."""
        parked = self._park()
        for delay, deliveries in self._later.take():
            self._send_on(deliveries, delay)
            for delivery in deliveries:
                self._state.ends.add("again" if delay else "put back", delivery.message.offset)
        for gate, deliveries in self._later.take_held():
            self._send_on(deliveries, 0, held=gate)
            for delivery in deliveries:
                self._state.ends.add("held", delivery.message.offset)
        return parked

    def _park(self) -> list[ParkRequest]:
        """Write deliveries to their retry topics; those that Kafka does not take wait in Celery and spend no retry."""
        waits = self._later.take_parked()
        parked = []
        written = self.parking.write(waits, self._failures, self._settlement) if waits else []
        for (delay, delivery), (clone, failed) in zip(waits, written, strict=True):
            if failed is None:
                parked.append(clone)
                self._state.remove(delivery, "parked")
                self.parking.log_parked(clone)
            else:
                self._stay_in_celery(delivery, delay, failed)
        return parked

    def _stay_in_celery(self, delivery: Delivery, delay: float, failed: PublishFailed) -> None:
        """Let a delivery that Kafka did not take wait in Celery; one too large for the topic for its whole delay."""
        pause = PUBLISH_BACKOFF.compute_pause(delivery.publish_tries)
        pause = delay if isinstance(failed, RecordTooLarge) else min(delay, pause)
        delivery_log.log_unparked(delivery, pause, failed)
        self._telemetry.count_retry("not_parked")
        # Its predecessor may not have been parked either, and is put off likewise.
        due = self._state.current(delivery).due
        again = replace(delivery, due=due, publish_tries=delivery.publish_tries + 1)
        self._state.update(again)
        if self._is_single:
            retry_batch(self._task, self._batch.holding([again]), pause, str(failed))
        self._later.put_off(again, DeliveryWait(pause))

    def _send_on(
        self, deliveries: Sequence[Delivery], delay: float, past: Mapping[str, Any] = NO_PAST, held: str = ""
    ) -> None:
        task = self._task
        batch = self._batch.holding(deliveries)
        if not delay and not past and (task.request.headers or {}).get("redelivered"):
            # An earlier run may have written a dead letter of them, or parked one, without its mark.
            past = {"redelivered": True}
        send_on(task.app, batch, delay, task.request.delivery_info or {}, self._most_together(delay), past, held)
        self._state.remove_sent(deliveries)

    def _most_together(self, delay: float) -> int:
        """Return the most deliveries of a message to which retries of this batch are joined."""
        if self._task.batch != "auto":
            return self._task.batch
        if self._takes is not None:
            least = MOST_FAR if delay >= FAR_FROM_TURN else 1
            return max(least, int(min(MOST_TOGETHER, PART_WITHIN / max(self._takes, 1e-6))))
        return max(len(self._batch.deliveries), int(min(MOST_TOGETHER, PART_WITHIN * self._telemetry.laps.pace)))
