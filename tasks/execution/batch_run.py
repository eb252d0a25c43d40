"""The run of a batch of deliveries (often of one) in the worker's child process: which deliveries run, in which order,
and what follows each.
"""

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate

from bridge.errors import LedgerUnavailable, MalformedDelivery, NeverPublished
from bridge.formats.celery_header import from_header
from bridge.formats.delivery import Batch, Dead, Delivery
from bridge.formats.failure import Failure
from bridge.ledger.attempt_statistics import CountKind
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.errors import DeadLettered, Failed, GivenAway, TopicHalted
from tasks.execution import batch_progress, delivery_log, process_loss, redis_clock
from tasks.execution.batch_fates import BatchFates
from tasks.execution.batch_progress import BatchState
from tasks.execution.breaker_guard import BREAKER_PAUSE, REFUSED_PAUSE, BreakerGuard
from tasks.execution.dead_letter_writer import DeadLetterWriter
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.handler_attempt import FailureJudge, HandlerAttempts, exit_if_told_to, find_cause
from tasks.execution.message_lease import MessageLease
from tasks.execution.message_resend import BatchReturn, retry_batch
from tasks.execution.outgoing_publication import OutgoingPublication, make_sequence_step
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement, follows_loss
from tasks.execution.time_limits import find_watchdog
from tasks.logs import note_no_run, set_logged_delivery
from tasks.policy.retry_policy import PERMANENT, Again, Bury, Drop, Halt
from tasks.worker import delivery_cost, worker_metrics
from tasks.worker.delivery_cost import DeliveryLaps
from tasks.worker.ledger_telemetry import attempt_outcomes, delivery_counts

logger = logs.harmless_logger(__name__)


def run_batch(task: MessageTask[..., Any], header: object) -> Any:
    """Run the batch in a `kafka` header to its end, or to its next run.

    Returns:
        what the handler returned; for several deliveries, how many ended how.

    Raises:
        Retry: the only delivery was sent again, or parked, to run later.
        DeadLettered: Kafka has the dead letters of all that died, and all else is settled or sent on.
        ComeBack: they could not all be settled; the message comes again with those that are not.
        Reject: the header is none that this version can read; the message comes again as it is.
    """
    begun = time.monotonic()
    try:
        batch = from_header(task.name, header)
    except MalformedDelivery as error:
        # Not ours, or of a newer version of this project: it waits for a worker that can read it.
        logger.error("%s", str(error))
        raise Reject(str(error), requeue=True) from None
    execution, watchdog = BatchRun(task, batch, begun), find_watchdog()
    if watchdog is not None:
        watchdog.executing = True
    try:
        result = execution.settle()
    except Exception:
        execution.note_pace()
        raise
    else:
        execution.note_pace()
        return result
    finally:
        execution.note_carrier()
        if watchdog is not None:
            watchdog.executing = False
        set_logged_delivery(None)


class BatchRun:
    """One run of a batch: its deliveries one after another, each with a fate of its own."""

    def __init__(self, task: MessageTask[..., Any], batch: Batch, begun: float) -> None:
        self._task, self._batch = task, batch
        self._headers = task.request.headers or {}
        self._alone = len(batch.deliveries) == 1
        self._fates = BatchFates.of(task.app, batch)
        self._settlement = Settlement.of(task, batch, self._fates)
        self._laps = DeliveryLaps(begun)
        self._runs = worker_metrics.RunCounter(task.name, batch.group, self._count)
        self._attempts = HandlerAttempts(task, batch, self._last_will)
        self._halt_guard = HaltGuard.of(task.app, batch)
        # The mark of a single delivery is not put off for others.
        self._state = BatchState(batch, None if self._alone else batch_progress.begin_notes(str(task.request.id)))
        self._batch_return = BatchReturn(task, batch, self._fates, self._settlement, self._state)
        self._schedule = RetrySchedule(task, batch, self._state, self._settlement, self._laps)
        self._dead_letters = DeadLetterWriter(batch, self._settlement, self._state, self._schedule)
        self._publication = OutgoingPublication(task.app)
        #: One moment for all: what is due together waits together again.
        self._begun = time.time()
        self._lease = MessageLease.of(task)
        self._breaker_guard = BreakerGuard.of(task, batch.group)
        self._judge = FailureJudge(task, batch, self._attempts, self._schedule.parking, self._breaker_guard)
        self._result: Any = None

    def settle(self) -> Any:
        """Run it. Whatever goes wrong on the way, what has not ended stays in the broker, and what was done is done."""
        try:
            return self.run()
        except (Retry, DeadLettered, WorkerShutdown, WorkerTerminate):
            raise
        except GivenAway as gone:
            return self._batch_return.given_up(gone)
        except TopicHalted as halted:
            # What was running is finished: it sends what it has to send.
            self._publish()
            raise self._batch_return.waits(halted, self._halt_guard.gate) from None
        except BaseException as error:
            exit_if_told_to(error)
            if (comes_back := self._batch_return.broken(error)) is None:
                return self._end()
            raise comes_back from None
        finally:
            self._runs.tell()

    def _count(self, outcome: str, number: int) -> None:
        what: CountKind = "handled" if outcome == "done" else "failed"
        delivery_counts.add(self._fates.ledger, self._batch.topic, self._batch.handler, what, number)
        if what == "handled":
            attempt_outcomes.succeeded(self._fates.ledger, self._batch.topic, self._batch.handler)

    def _last_will(self) -> None:
        """What was done before a handler that ends the process is done, and counted."""
        self._fates.flush(0)
        self._runs.tell()

    def note_pace(self) -> None:
        """Note what its deliveries took, for the size of the batches to come and for how many are handed off ahead."""
        delivery_cost.note_cost(self._fates.ledger, self._batch.handler, self._laps.cost())

    def note_carrier(self) -> None:
        """Note which task carried what has ended."""
        self._settlement.note_carrier(self._task.request.id)

    def run(self) -> Any:
        """Run what is not settled; then send on what must run later; then mark, and return."""
        self._lease.check()
        found = find_unsettled(self._task, self._batch, self._fates, self._settlement, self._state)
        todo = process_loss.count_worker_losses(found, self._headers)
        note_no_run(str(self._task.request.id), "" if todo else self._why_none_runs())
        for delivery in todo:
            self._state.set(delivery)
        if delivery_cost.follows_new_loss(self._headers):
            worker_metrics.count_lost_process(self._batch.handler, self._batch.group)
            attempt_outcomes.process_lost(self._fates.ledger, self._batch.topic, self._batch.handler)
            if self._task.batch == "auto":
                delivery_cost.note_lost_process(self._fates.ledger, self._batch.handler)
        # Where a process or a whole worker died with it, it runs apart from others.
        if follows_loss(self._headers) and len(todo) > 1 and self._batch.order is None:
            return self._schedule.break_up(todo)
        self._walk(todo)
        self._publish()
        self._fates.flush()
        return self._end()

    def _why_none_runs(self) -> str:
        if not self._alone:
            return str(self._state.ends)
        return "its delivery was discarded" if self._fates.discarded else "its delivery was settled already"

    def _walk(self, todo: list[Delivery]) -> None:
        now = time.monotonic()
        until = now + self._task.batch_seconds
        for number, delivery in enumerate(todo):
            if number and now > until:
                self._schedule.rest(todo[number:])
                return
            self._lease.check()
            self._halt_guard.check()
            try:
                self._process(delivery)
            finally:
                now = self._laps.lap(now, self._dead_letters.took())
            if self._publication.is_due:
                self._publish()
                now = time.monotonic()

    def _process(self, delivery: Delivery) -> None:
        set_logged_delivery(delivery)
        self._state.runs(delivery)
        if delivery.ended:
            self._end_again(delivery)
        elif self._schedule.is_held_back(delivery):
            return
        elif delivery.due is not None and (left := self._left(delivery.due)) > 0:
            # What has ended but for its dead letter, or for what it sends, does not run again: it is not parked.
            has_run = delivery.dead is not None or delivery.outgoing
            wait = self._schedule.again if has_run else self._schedule.put_off
            wait(delivery, left, "its time has not come")
        elif delivery.after is not None and delivery.after not in self._state.over:
            self._schedule.stay_behind(delivery)
        elif delivery.dead is not None:
            self._dead_letters.write(delivery, delivery.dead)
        elif delivery.outgoing:
            self._done(delivery)
        else:
            self._run_or_wait(delivery)

    def _run_or_wait(self, delivery: Delivery) -> None:
        delivery = self._breaker_guard.overran(delivery, self._headers)
        if not self._breaker_guard.admits():
            worker_metrics.count_retry(self._task.name, self._batch.group, "postponed")
            has_failed = delivery.attempts.failed or delivery.attempts.postponed
            self._schedule.again(delivery, BREAKER_PAUSE if has_failed else REFUSED_PAUSE, "what it needs is down")
        else:
            self._handle(self._breaker_guard.forgiven(delivery))

    def _end_again(self, delivery: Delivery) -> None:
        """It ended in an earlier run, which could not tell the ledger."""
        self._state.ends.add(delivery.ended, delivery.message.offset)
        self._settlement.ended_before(delivery)
        if delivery.ended != "parked":
            self._state.ended(delivery)

    def _handle(self, delivery: Delivery) -> None:
        if delivery.after is not None or delivery.publish_tries:
            # That it was tried at all is remembered: Kafka may have it, and did not say so.
            delivery = replace(delivery, after=None, publish_tries=min(1, delivery.publish_tries))
        ended = self._attempts.at(delivery)
        self._runs.ended("done" if ended.error is None else "failed", ended.seconds)
        if self._task.batch == "auto":
            delivery_cost.note_slow_run(self._fates.ledger, self._batch.handler, ended.seconds)
        if ended.error is None:
            self._result = ended.returned
            self._breaker_guard.good()
            self._done(delivery)
        else:
            self._lease.check()
            self._failed(delivery, ended.error)

    def _done(self, delivery: Delivery) -> None:
        """Its handler has succeeded: it is done when what that sends is published."""
        unsent = self._publication.take(delivery, make_sequence_step(self._task.app, self._batch, delivery))
        if unsent is None:
            self._settle(delivery)
            return
        # However this run ends, its handler does not run again for what is still to be sent.
        self._state.set(unsent.again)
        if self._batch.order is not None:
            # What comes after it in its order may not be sent before it.
            self._publish()

    def _publish(self) -> None:
        """Publish what the handlers have sent so far, all together; what Kafka does not take comes again."""
        for each, failed in self._publication.publish():
            if failed is None:
                self._settle(each.delivery)
            elif isinstance(failed, NeverPublished):
                failure = Failure.of(failed, traceback=False)
                dead = Dead(PERMANENT, failure, self._task.version)
                self._dead_letters.write(each.delivery.failed(failure, spent=True), dead, failed)
            else:
                self._schedule.unsent(each, failed)

    def _settle(self, delivery: Delivery) -> None:
        self._state.succeeded(delivery)
        self._settlement.done(delivery)
        self._state.ended(delivery)

    def _left(self, due: float) -> float:
        """Seconds until a time by Redis's clock."""
        return due - (self._begun - redis_clock.measure_clock_lead(self._task.app, self._batch))

    def _failed(self, delivery: Delivery, error: BaseException) -> None:
        """Do what is decided of it."""
        now, cause = time.time(), find_cause(error)
        decision = self._judge.decision(delivery, error, now)
        failure = Failure.of(cause, now, traceback=isinstance(decision, Bury))
        match decision:
            case Drop():
                self._done(delivery)
            case Again(delay, spent):
                if spent:
                    self._note_failure(failure)
                worker_metrics.count_retry(self._task.name, self._batch.group, "failed" if spent else "postponed")
                self._schedule.put_off(delivery.failed(failure, spent=spent), delay, str(failure), failure)
            case Halt():
                worker_metrics.count_retry(self._task.name, self._batch.group, "halted")
                self._state.set(delivery.failed(failure, spent=False))
                self._halt_guard.stop(delivery, failure, cause)
                raise TopicHalted(f"topic {self._batch.topic!r} was halted by it: {failure}", first=True)
            case Bury(reason, why):
                self._note_failure(failure)
                dead = Dead(reason, failure.with_why(why), self._task.version)
                self._dead_letters.write(delivery.failed(dead.failure, spent=True), dead, cause)

    def _note_failure(self, failure: Failure) -> None:
        attempt_outcomes.failed(self._fates.ledger, self._batch.topic, self._batch.handler, error=str(failure))

    def _end(self) -> Any:
        """Send on what runs later, and say how it went."""
        self._lease.check()
        parked = self._schedule.send()
        if (epitaph := self._dead_letters.epitaph(self._state.ends)) is not None:
            # A task with a dead letter is a failed one for Flower, however many of its batch were done.
            raise DeadLettered(epitaph)
        if self._alone and parked:
            # For Flower, too, it is a task that runs again; only that it is not Celery that sends it.
            due = datetime.fromtimestamp(parked[0].due / 1000, UTC)
            raise Retry(parked[0].delivery.error, Failed(parked[0].delivery.error), due)
        return self._result if self._alone else str(self._state.ends)


#: Seconds before a delivery is tried again while the ledger does not say whether it is settled.
LEDGER_DELAY: Final = 5.0


def find_unsettled(
    task: MessageTask[..., Any], batch: Batch, fates: BatchFates, settlement: Settlement, state: BatchState
) -> list[Delivery]:
    """The deliveries that are to run, in the order of their offsets.

    Raises:
        Retry: the ledger does not say; the message was sent again.
    """
    deliveries = sorted(batch.deliveries, key=lambda delivery: delivery.message.offset)
    behind = sorted({delivery.after for delivery in deliveries if delivery.after is not None})
    if not behind and settlement.is_new(deliveries[0], task.request.properties):
        return deliveries
    try:
        if behind:
            state.over.update(fates.over(behind))
        settled = fates.settled([delivery.message.offset for delivery in deliveries])
    except LedgerUnavailable as error:
        retry_batch(task, batch, LEDGER_DELAY, str(error), ran=False)
    for delivery in deliveries:
        if delivery.message.offset in settled:
            discarded = delivery.message.offset in fates.discarded
            state.gone(delivery, "discarded" if discarded else "skipped")
            worker_metrics.count_skipped(task.name, batch.group)
            delivery_log.log_skipped(delivery, discarded=discarded)
    return [delivery for delivery in deliveries if delivery.message.offset not in settled]
