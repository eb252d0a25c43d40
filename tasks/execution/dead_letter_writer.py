"""The writer of dead letters: for a running batch, and as the task `tasks.bury` for a delivery that the worker's main
process had to give up. While Kafka does not take a dead letter, it is retried.
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
from tasks.execution.batch_progress import BatchEnds, BatchState, put_behind
from tasks.execution.breaker_guard import BREAKER_PAUSE, BreakerGuard
from tasks.execution.message_resend import PUBLISH_BACKOFF, retry_task, send_on
from tasks.execution.process_loss import clear_losses, count_unsaid_losses, find_poison, overran_limit
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement
from tasks.policy.failure_decision import EXPIRED, PERMANENT, POISON, UNKNOWN_HANDLER
from tasks.worker import worker_metrics
from tasks.worker.ledger_telemetry import attempt_outcomes
from tasks.worker.worker_metrics import count_lost_process, count_retry

logger = logs.harmless_logger(__name__)

#: The name of the task; the setting `burial_task` of the worker names it.
BURIAL_TASK: Final = "tasks.bury"


def bury(self: Task, letter: dict[str, Any]) -> None:  # type: ignore[type-arg]
    """Publish the dead letter of a message that the main process gave up; retry while Kafka does not take it.

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
        fates = BatchFates.for_batch(self.app, batch)
        settlement = Settlement.for_batch(self, batch, fates)
        todo = _find_todo(batch, fates, settlement)
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
            # A delivery that was dead before, and waited for Kafka, keeps that reason.
            write_dead_letter(settlement, run, delivery.dead or dead, batch.group, again=self.request.retries > 0)
        if rest := [delivery for delivery in todo if delivery not in guilty]:
            rest = put_behind(rest, guilty, batch.order if fates.holds_dead else None)
            send_on(self.app, batch.holding(rest), 0, {"routing_key": letter.get("queue")})
        settlement.note_carrier(letter.get("id"))
    except (LedgerUnavailable, PublishFailed) as error:
        # The dead letter may be written without its mark: the next run checks.
        headers = {**(self.request.headers or {}), "redelivered": True}
        delay = PUBLISH_BACKOFF.compute_pause(self.request.retries)
        logger.error(
            "%s is dead (%s), but its dead letter could not be written; again in %d s: %s",
            str(batch),
            dead.reason,
            delay,
            str(error),
        )
        retry_task(self, countdown=delay, headers=headers)


def _find_todo(batch: Batch, fates: BatchFates, settlement: Settlement) -> list[Delivery]:
    """Return the unsettled deliveries of a buried message; those that a dead one holds have it as predecessor."""
    for delivery in batch.deliveries:
        if delivery.ended:
            settlement.mark_earlier_end(delivery)
    settled = fates.settled(sorted(batch.offsets))
    todo = [each for each in batch.deliveries if not each.ended and each.message.offset not in settled]
    if len(todo) == len(batch.deliveries):
        return todo
    return put_behind(todo, fates.find_holding(batch.deliveries, todo), batch.order)


def write_dead_letter(settlement: Settlement, delivery: Delivery, dead: Dead, group: str, *, again: bool) -> None:
    """Write a dead letter, and note for `bridge status` whether Kafka refuses it.

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
    """Return whether a delivery overran its time limit because its circuit breaker's dependency hangs."""
    if dead.reason != POISON or not overran_limit(dead.failure.error_message):
        return False
    task: Any = app.tasks.get(batch.handler)
    return isinstance(task, MessageTask) and BreakerGuard.for_task(task, batch.group).reports_hang(delivery)


def _split_spared(batch: Batch, todo: list[Delivery], delivery: Delivery) -> list[list[Delivery]]:
    """Return the messages in which spared deliveries go on: the overdue one alone, unless they are ordered."""
    spared = clear_losses(delivery)
    if batch.order is not None:
        return [[spared if each is delivery else each for each in todo]]
    return [part for part in ([each for each in todo if each is not delivery], [spared]) if part]


def register_burial(app: Celery) -> None:
    """Register the burial task at an app."""
    app.task(name=BURIAL_TASK, base=DeliveryTask, bind=True, lazy=False, shared=False, max_retries=None)(bury)


def carries_record(headers: object) -> bool:
    """Return whether a Celery message with these headers is a delivery, which can be dead-lettered."""
    if not isinstance(headers, Mapping):
        return False
    try:
        from_header(str(headers.get("task")), headers.get(HEADER))
    except MalformedDelivery:
        return False
    return True


#: The main process's reasons for a burial, and the values of the `reason` header.
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
    """Return the version of the handler's code; for an unknown handler, the version in the environment."""
    task: Any = app.tasks.get(handler)
    return task.version if isinstance(task, MessageTask) else find_handlers_version("", os.environ)


def _show_letter(letter: dict[str, Any]) -> str:
    return cut(repr({name: value for name, value in letter.items() if name != "error_traceback"}), 4_000)


class DeadLetterWriter:
    """The writer of one batch's dead letters.

    Parameters:
        schedule: lets deliveries wait whose dead letter Kafka did not take.
        holds_dead: whether a dead delivery holds those behind it in its order.
    """

    def __init__(
        self,
        batch: Batch,
        settlement: Settlement,
        state: BatchState,
        schedule: RetrySchedule,
        *,
        holds_dead: bool = False,
    ) -> None:
        self._holds_dead = holds_dead
        self._group, self._settlement, self._state, self._schedule = batch.group, settlement, state, schedule
        self._is_single = len(batch.deliveries) == 1
        self._first: Dead | None = None
        self._seconds = 0.0

    def write(self, delivery: Delivery, dead: Dead, cause: BaseException | None = None) -> None:
        """Write a delivery's dead letter; retry later while Kafka does not take it.

        Raises:
            LedgerUnavailable: it is written, and the ledger did not take the mark.
        """
        since = time.monotonic()
        try:
            self._settlement.dead(delivery, dead, cause)
        except PublishFailed as error:
            self._retry_later(delivery, dead, error, cause)
            return
        finally:
            self._seconds += time.monotonic() - since
        if delivery.publish_tries:
            attempt_outcomes.written(self._settlement.ledger, delivery.handler, delivery.identity)
        self._state.ends.add("dead", delivery.message.offset)
        self.end(delivery)
        self._first = self._first or dead

    def end(self, delivery: Delivery) -> None:
        """Let the next delivery in the order of a dead one run, unless the topic's dead letters hold it."""
        if self._holds_dead:
            self._state.hold_behind(delivery)
            self._schedule.hold_behind(delivery)
        else:
            self._state.finish(delivery)

    def take_seconds(self) -> float:
        """Return the seconds that dead letters took to publish since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def summarize(self, ends: BatchEnds) -> str | None:
        """Return the text of a failed task with the batch's dead letters; None if there are none."""
        first = self._first
        if first is None:
            return None
        if self._is_single:
            return f"{first.reason}: {first.failure}"
        words = cut(str(first.failure), ERROR_LENGTH)
        return f"{ends.counts}; the first of the dead: {first.reason}: {words}; {ends.names}"

    def _retry_later(self, delivery: Delivery, dead: Dead, error: PublishFailed, cause: BaseException | None) -> None:
        delay = PUBLISH_BACKOFF.compute_pause(delivery.publish_tries)
        worker_metrics.count_retry(delivery.handler, self._group, "dead_letter_unpublished")
        attempt_outcomes.refused(self._settlement.ledger, delivery.handler, delivery.identity, str(error)[:300])
        delivery_log.log_unpublished(delivery, dead, delay, error, cause)
        waiting = replace(delivery, dead=dead, publish_tries=delivery.publish_tries + 1)
        self._schedule.retry_in_celery(waiting, delay, str(dead.failure))
