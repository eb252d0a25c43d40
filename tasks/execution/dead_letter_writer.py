"""The writer of dead letters: for a batch that runs, and as the task `tasks.bury` for a delivery that the worker's
main process had to give up. As long as Kafka does not take a dead letter, it is tried again later.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from celery import Celery, Task

from bridge.errors import LedgerUnavailable, MalformedDelivery, PublishFailed
from bridge.formats.celery_header import HEADER, from_header
from bridge.formats.delivery import ERROR_LENGTH, Batch, Dead, Delivery
from bridge.formats.failure import Failure, cut
from bridge.settings.installed_versions import find_handlers_version
from tasks import logs
from tasks.declaration.celery_defaults import DeliveryTask
from tasks.declaration.message_task import MessageTask
from tasks.execution import delivery_log
from tasks.execution.batch_fates import BatchFates
from tasks.execution.batch_progress import BatchEnds, BatchState
from tasks.execution.breaker_guard import BREAKER_PAUSE, BreakerGuard
from tasks.execution.message_resend import publish_delay, retry_task, send_on
from tasks.execution.process_loss import clear_losses, count_unsaid_losses, find_poison, overran_limit
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement
from tasks.policy.retry_policy import EXPIRED, PERMANENT, POISON, UNKNOWN_HANDLER
from tasks.worker import worker_metrics
from tasks.worker.ledger_telemetry import attempt_outcomes
from tasks.worker.worker_metrics import count_lost_process, count_retry

logger = logs.harmless_logger(__name__)

#: The name of the task; the setting `burial_task` of the worker names it.
BURIAL_TASK: Final = "tasks.bury"


def bury(self: Task, letter: dict[str, Any]) -> None:  # type: ignore[type-arg]
    """Publish the dead letter of what the main process gave up; as long as Kafka cannot take it, try again.

    Parameters:
        letter: a `lossless.worker.message_burial.Burial`.
    """
    try:
        batch = from_header(str(letter.get("task")), (letter.get("headers") or {}).get(HEADER))
    except MalformedDelivery:
        logger.critical("A Celery message that carries no record was given up: %s", _show_letter(letter))
        return
    dead = Dead(_reason(letter), _failure(letter), _version(self.app, batch.handler))
    try:
        fates = BatchFates.of(self.app, batch)
        settlement = Settlement.of(self, batch, fates)
        for delivery in batch.deliveries:
            if delivery.ended:
                settlement.ended_before(delivery)
        settled = fates.settled(sorted(batch.offsets))
        left = [delivery for delivery in batch.deliveries if not delivery.ended]
        todo = [delivery for delivery in left if delivery.message.offset not in settled]
        guilty = find_poison(todo) if dead.reason == POISON else todo
        if dead.reason == POISON and todo:
            count_lost_process(batch.handler, batch.group)
            attempt_outcomes.process_lost(fates.ledger, batch.topic, batch.handler)
        if guilty and _is_spared(self.app, batch, guilty[0], dead):
            for part in _split_spared(batch, todo, guilty[0]):
                send_on(self.app, batch.holding(part), BREAKER_PAUSE, {"routing_key": letter.get("queue")})
            todo = guilty = []
        for delivery in guilty:
            run = delivery.lost(count_unsaid_losses(letter))
            # What was dead before, and waited for Kafka to take it, died of that.
            write_dead_letter(settlement, run, delivery.dead or dead, batch.group, again=self.request.retries > 0)
        if rest := [delivery for delivery in todo if delivery not in guilty]:
            send_on(self.app, batch.holding(rest), 0, {"routing_key": letter.get("queue")})
        settlement.note_carrier(letter.get("id"))
    except (LedgerUnavailable, PublishFailed) as error:
        # The dead letter may be written, without its mark: the next run looks.
        headers = {**(self.request.headers or {}), "redelivered": True}
        delay = publish_delay(self.request.retries)
        logger.error(
            "%s is dead (%s), but that could not be written; again in %d s: %s",
            str(batch),
            dead.reason,
            delay,
            str(error),
        )
        retry_task(self, countdown=delay, headers=headers)


def write_dead_letter(settlement: Settlement, delivery: Delivery, dead: Dead, group: str, *, again: bool) -> None:
    """Write a dead letter; note for `bridge status` that Kafka refuses it, and that it takes it after all.

    Parameters:
        again: Kafka may have refused it before.

    Raises:
        LedgerUnavailable: it is written, and the ledger did not take the mark.
        PublishFailed: Kafka did not take it.
    """
    try:
        settlement.dead(delivery, dead)
    except PublishFailed as error:
        count_retry(delivery.handler, group, "dead_letter_unpublished")
        attempt_outcomes.refused(settlement.ledger, delivery.handler, delivery.identity, str(error)[:300])
        raise
    if again or delivery.publish_tries:
        attempt_outcomes.written(settlement.ledger, delivery.handler, delivery.identity)


def _is_spared(app: Celery, batch: Batch, delivery: Delivery, dead: Dead) -> bool:
    """Whether it ran into its time limit because what its handler needs hangs."""
    if dead.reason != POISON or not overran_limit(dead.failure.error_message):
        return False
    task: Any = app.tasks.get(batch.handler)
    return isinstance(task, MessageTask) and BreakerGuard.of(task, batch.group).spares(delivery)


def _split_spared(batch: Batch, todo: list[Delivery], delivery: Delivery) -> list[list[Delivery]]:
    """The messages in which they go on: it runs alone, but what is ordered stays together."""
    spared = clear_losses(delivery)
    if batch.order is not None:
        return [[spared if each is delivery else each for each in todo]]
    return [part for part in ([each for each in todo if each is not delivery], [spared]) if part]


def register_burial(app: Celery) -> None:
    """Make it a task of an app whose worker buries through it."""
    app.task(name=BURIAL_TASK, base=DeliveryTask, bind=True, lazy=False, shared=False, max_retries=None)(bury)


def carries_record(headers: object) -> bool:
    """Whether a Celery message with these headers is a delivery, which can be dead-lettered."""
    if not isinstance(headers, Mapping):
        return False
    try:
        from_header(str(headers.get("task")), headers.get(HEADER))
    except MalformedDelivery:
        return False
    return True


#: What the worker's main process calls the ends that it finds, in the words of our headers.
_REASONS: Final = {"unknown_task": UNKNOWN_HANDLER, "poison": POISON, "expired": EXPIRED}


def _reason(letter: dict[str, Any]) -> str:
    return _REASONS.get(str(letter.get("reason")), PERMANENT)


def _failure(letter: dict[str, Any]) -> Failure:
    return Failure(
        error_class=str(letter.get("error_class") or ""),
        error_message=str(letter.get("error_message") or ""),
        error_traceback=str(letter.get("error_traceback") or ""),
        failed_at=int(letter.get("failed_at") or time.time() * 1000),
    )


def _version(app: Celery, handler: str) -> str:
    """Of the handler's code in this worker; of one that it does not know, what the environment says."""
    task: Any = app.tasks.get(handler)
    return task.version if isinstance(task, MessageTask) else find_handlers_version("", os.environ)


def _show_letter(letter: dict[str, Any]) -> str:
    return cut(repr({name: value for name, value in letter.items() if name != "error_traceback"}), 4_000)


class DeadLetterWriter:
    """Those of one batch.

    Parameters:
        waiting: where a delivery waits whose letter Kafka did not take.
    """

    def __init__(self, batch: Batch, settlement: Settlement, state: BatchState, waiting: RetrySchedule) -> None:
        self._group, self._settlement, self._state, self._schedule = batch.group, settlement, state, waiting
        self._alone = len(batch.deliveries) == 1
        self._first: Dead | None = None
        self._seconds = 0.0

    def write(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write a delivery's; as long as Kafka cannot take it, later again.

        Raises:
            LedgerUnavailable: it is written, and the ledger did not take the mark.
        """
        since = time.monotonic()
        try:
            self._settlement.dead(delivery, dead, cause)
        except PublishFailed as error:
            self._later(delivery, dead, error, cause)
            return
        finally:
            self._seconds += time.monotonic() - since
        if delivery.publish_tries:
            attempt_outcomes.written(self._settlement.ledger, delivery.handler, delivery.identity)
        self._state.ends.add("dead", delivery.message.offset)
        self._state.ended(delivery)
        self._first = self._first or dead

    def took(self) -> float:
        """Seconds for which Kafka took those that were written since this was last asked."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def epitaph(self, ends: BatchEnds) -> str | None:
        """What a task says of them that has any."""
        first = self._first
        if first is None:
            return None
        if self._alone:
            return f"{first.reason}: {first.failure}"
        words = cut(str(first.failure), ERROR_LENGTH)
        return f"{ends.counts}; the first of the dead: {first.reason}: {words}; {ends.names}"

    def _later(self, delivery: Delivery, dead: Dead, error: PublishFailed, cause: BaseException | None) -> None:
        delay = publish_delay(delivery.publish_tries)
        worker_metrics.count_retry(delivery.handler, self._group, "dead_letter_unpublished")
        attempt_outcomes.refused(self._settlement.ledger, delivery.handler, delivery.identity, str(error)[:300])
        delivery_log.log_unpublished(delivery, dead, delay, error, cause)
        waiting = replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1)
        self._schedule.again(waiting, delay, str(dead.failure))
