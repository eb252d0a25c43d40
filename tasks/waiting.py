"""What of a batch runs later, and by what: a retry topic where one is for so long a wait, else Celery."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from bridge.errors import PublishFailed, RecordTooLarge
from bridge.records.failure import Failure
from bridge.records.message import Batch, Delivery
from bridge.topics.publisher import Clone
from tasks import aftermath, metrics, observing, telling
from tasks.later import Later, Wait
from tasks.pace import Laps
from tasks.parking import Parking
from tasks.resending import publish_delay, retry_batch, send_on
from tasks.running import MessageTask
from tasks.sending import Unsent
from tasks.settling import Settling
from tasks.standing import Standing

# As where the batch runs: one who reads the logs of that reads these.
logger = observing.log("tasks.execution")

#: Seconds that a part of a batch may take whose time was over.
WITHIN: Final = 0.05
#: Seconds, at the most, after which it is looked again whether what comes before a delivery in its order has ended.
BEHIND: Final = 60.0
#: Retries that travel together, at the most, where nobody has said how large a batch is to be.
MOST: Final = 500
#: What a message has cost that has cost nothing.
NO_PAST: Final[Mapping[str, Any]] = MappingProxyType({})


class Waiting:
    """What waits of one batch.

    Parameters:
        laps: what its deliveries take.
    """

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, standing: Standing, settling: Settling, laps: Laps
    ) -> None:
        self._task, self._batch, self._standing, self._settling = task, batch, standing, settling
        self._laps = laps
        self._alone = len(batch.deliveries) == 1
        self._later = Later(batch.order)
        self._failures: dict[int, Failure] = {}
        self.parking = Parking(task, batch)

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
                telling.again(delivery, delay, failure)
            self.again(delivery, delay, words)
            return
        if failure is not None:
            self._failures[delivery.message.offset] = failure
        self._standing.set(replace(delivery, due=time.time() + delay))
        self._later.again(replace(delivery, due=None), Wait(delay, parked=True))

    def again(self, delivery: Delivery, delay: float, words: str) -> None:
        """It waits in Celery.

        Raises:
            Retry: it is the only one of its message, which is sent again.
        """
        self._standing.set(replace(delivery, due=time.time() + delay))
        if self._alone:
            retry_batch(self._task, self._batch.holding([replace(delivery, due=None)]), delay, words)
        self._later.again(replace(delivery, due=None), Wait(delay))

    def unsent(self, unsent: Unsent, failed: PublishFailed) -> None:
        """Kafka did not take what its handler sends, which has succeeded: that alone is tried again, in Celery."""
        delivery = unsent.delivery
        delay = publish_delay(delivery.publish_tries)
        metrics.retried(self._task.name, self._batch.group, "unsent")
        telling.unsent(delivery, delay, failed)
        self.again(replace(unsent.again, publish_tries=delivery.publish_tries + 1), delay, str(failed))

    def stay_behind(self, delivery: Delivery) -> None:
        """The one before it in its order, behind which it was parked, has not ended: so it waits, ever longer."""
        delay = min(2.0**delivery.publish_tries, BEHIND)
        again = replace(delivery, publish_tries=delivery.publish_tries + 1)
        self.put_off(again, delay, f"offset {delivery.after}, before it in its order, has not ended")

    def rest(self, todo: Sequence[Delivery]) -> None:
        """The time of this batch is over: what is left goes back to the queue as a batch of its own.

        Where nobody has said how large a batch is to be, as several: others may be idle.
        """
        if self._task.batch == "auto" and self._batch.order is None:
            most = max(1, int(WITHIN * self._laps.pace))
            for start in range(0, len(todo), most):
                self._send_on(todo[start : start + most], 0)
            for delivery in todo:
                self._standing.ends.add("put back", delivery.message.offset)
            return
        for delivery in todo:
            self._later.put_off(delivery, self._later.wait_of(delivery) or Wait(0.0))

    def break_up(self, todo: Sequence[Delivery]) -> str:
        """A process was lost with this batch: the one that was running runs alone, or each where that is not known."""
        parts = aftermath.apart(todo, self._task.request.headers or {})
        logger.warning("%s: a process was lost with it: it goes on in %d parts.", str(self._batch), len(parts))
        for deliveries, past in parts:
            self._send_on(deliveries, 0, past)
        return f"broken up into {len(parts)}"

    def send(self) -> list[Clone]:
        """Park, or send on, what runs later: what is due together goes together. Return what was parked."""
        parked = self._park()
        for delay, deliveries in self._later.take():
            self._send_on(deliveries, delay)
            for delivery in deliveries:
                self._standing.ends.add("again" if delay else "put back", delivery.message.offset)
        return parked

    def _park(self) -> list[Clone]:
        """Write what waits in retry topics there; what Kafka does not take stays in Celery, and spends nothing."""
        waits = self._later.take_parked()
        parked = []
        written = self.parking.write(waits, self._failures, self._settling) if waits else []
        for (delay, delivery), (clone, failed) in zip(waits, written, strict=True):
            if failed is None:
                parked.append(clone)
                self._standing.gone(delivery, "parked")
                self.parking.tell(clone)
            else:
                self._stay_in_celery(delivery, delay, failed)
        return parked

    def _stay_in_celery(self, delivery: Delivery, delay: float, failed: PublishFailed) -> None:
        """Kafka did not take it: it is tried again later. What is too large for its topic waits in Celery whole."""
        pause = delay if isinstance(failed, RecordTooLarge) else min(delay, publish_delay(delivery.publish_tries))
        telling.unparked(delivery, pause, failed)
        metrics.retried(self._task.name, self._batch.group, "not_parked")
        # What must come before it may not have been parked either, and is put off likewise.
        due = self._standing.now(delivery).due
        again = replace(delivery, due=due, publish_tries=delivery.publish_tries + 1)
        self._standing.set(again)
        if self._alone:
            retry_batch(self._task, self._batch.holding([again]), pause, str(failed))
        self._later.put_off(again, Wait(pause))

    def _send_on(self, deliveries: Sequence[Delivery], delay: float, past: Mapping[str, Any] = NO_PAST) -> None:
        task = self._task
        batch = self._batch.holding(deliveries)
        send_on(task.app, batch, delay, task.request.delivery_info or {}, self._most_together(), past)
        self._standing.sent_on(deliveries)

    def _most_together(self) -> int:
        """How many deliveries one message may carry to which retries of this batch are joined."""
        if self._task.batch != "auto":
            return self._task.batch
        return max(len(self._batch.deliveries), int(min(MOST, WITHIN * self._laps.pace)))
