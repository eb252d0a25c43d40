"""The run of a batch of deliveries (often of one) in the worker's child process: one by one, in bulk or side by side,
and what each outcome leads to. tasks/execution/delivery_admission.py decides which deliveries run.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Reject, Retry, WorkerShutdown, WorkerTerminate

from bridge.errors import MalformedDelivery
from bridge.formats.celery_header import from_header
from bridge.formats.delivery import Batch, Delivery
from lossless.worker.run_outcome import ComeBack
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.errors import DeadLettered, Failed, GivenAway, TopicHalted
from tasks.execution import batch_progress, event_loop, process_loss
from tasks.execution.attempt_spans import find_attempt_classes
from tasks.execution.batch_fates import BatchFates
from tasks.execution.batch_progress import BatchState
from tasks.execution.batch_telemetry import BatchTelemetry
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.bulk_run import BulkRun, DeliverySteps
from tasks.execution.concurrent_run import ConcurrentRun, RunSteps
from tasks.execution.dead_letter_writer import DeadLetterWriter
from tasks.execution.delivery_admission import AdmittedDelivery, DeliveryAdmission, find_unsettled
from tasks.execution.halt_gate import HaltGuard
from tasks.execution.handler_attempt import AttemptEnd, FailureJudge, exit_if_told_to
from tasks.execution.limit_guard import NO_LIMIT, LimitGuard, NoLimit
from tasks.execution.message_lease import MessageLease
from tasks.execution.message_resend import BatchReturn, find_reject_cause
from tasks.execution.outcome_actions import OutcomeActions
from tasks.execution.outgoing_publication import PUBLISH_EVERY, OutgoingPublication
from tasks.execution.retry_schedule import RetrySchedule
from tasks.execution.settlement import Settlement, follows_loss
from tasks.execution.time_limits import find_watchdog
from tasks.execution.unique_guard import UniqueGuard
from tasks.logs import note_no_run, set_logged_delivery
from tasks.worker import concurrency_meter, delivery_cost

logger = logs.harmless_logger(__name__)


def run_batch(task: MessageTask[..., Any], header: object) -> Any:
    """Run the batch in a `kafka` header, and settle its deliveries or send them on.

    Returns:
        what the handler returned; for several deliveries, how many ended how.

    Raises:
        Retry: the only delivery was sent again, or parked, to run later.
        DeadLettered: Kafka has the dead letters of all that died, and all else is settled or sent on.
        ComeBack: not all could be settled; the message is redelivered with the rest.
        Reject: this version cannot read the header; the message is redelivered unchanged.
    """
    begun = time.monotonic()
    try:
        batch = from_header(task.name, header)
    except MalformedDelivery as error:
        # Of another application, or of a newer version of this project: it waits for a worker that can read it.
        logger.error("%s", str(error))
        raise Reject(str(error), requeue=True) from None
    try:
        execution = BatchRun(task, batch, begun)
    except Exception as error:
        # Celery acknowledges a task that raises: no message would carry these deliveries any more.
        cause, words = find_reject_cause(error)
        raise ComeBack(f"the run of {batch} could not begin: {cause}: {words}", {}) from error
    watchdog = find_watchdog()
    if watchdog is not None:
        watchdog.begin_batch()
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
            watchdog.end_batch()
        set_logged_delivery(None)


class BatchRun:
    """One run of a batch: its deliveries one after another, each with a fate of its own."""

    def __init__(self, task: MessageTask[..., Any], batch: Batch, begun: float) -> None:
        self._task, self._batch = task, batch
        self._headers = task.request.headers or {}
        self._is_single = len(batch.deliveries) == 1
        self._fates = BatchFates.for_batch(task.app, batch)
        self._settlement = Settlement.for_batch(task, batch, self._fates)
        self._telemetry = BatchTelemetry(task, batch, self._fates.ledger, begun)
        # The mark of a single delivery is not put off for others.
        self._state = BatchState(batch, None if self._is_single else batch_progress.begin_notes(str(task.request.id)))
        self._attempts = find_attempt_classes().in_turn(task, batch, self._last_will, self._state)
        self._halt_guard = HaltGuard.for_batch(task.app, batch)
        self._batch_return = BatchReturn(task, batch, self._fates, self._settlement, self._state)
        self._schedule = RetrySchedule(task, batch, self._state, self._settlement, self._telemetry)
        self._dead_letters = DeadLetterWriter(
            batch, self._settlement, self._state, self._schedule, holds_dead=self._fates.holds_dead
        )
        self._publication = OutgoingPublication(task.app)
        self._unique_guard = UniqueGuard.for_batch(task, self._fates, self._settle_ended, self._attempts.run_judge)
        self._limit_guard: NoLimit = NO_LIMIT
        if task.limit is not None:
            parts = (task, self._fates, batch.group, batch.order, self._telemetry.laps)
            self._limit_guard = LimitGuard.for_batch(*parts, self._attempts.run_judge)
        self._actions = OutcomeActions(
            *(task, batch, self._settlement, self._state, self._schedule, self._dead_letters, self._publication),
            *(self._halt_guard, self._unique_guard, self._telemetry),
        )
        self._admission = DeliveryAdmission(
            *(task, batch, self._headers, self._settlement, self._state, self._schedule, self._dead_letters),
            *(self._actions, self._halt_guard, self._unique_guard, self._limit_guard),
            *(self._fail_unnamed, self._end_duplicate),
        )
        self._lease = MessageLease.from_request(task)
        self._breaker_guard = BreakerGuard.for_task(task, batch.group)
        self._judge = FailureJudge(task, batch, self._attempts, self._schedule.parking)
        self._result: Any = None

    def settle(self) -> Any:
        """Run the batch. On any error the unsettled deliveries stay in the broker, and done ones stay done."""
        try:
            return self.run()
        except (Retry, DeadLettered, WorkerShutdown, WorkerTerminate):
            raise
        except GivenAway as gone:
            return self._batch_return.give_up(gone)
        except TopicHalted as halted:
            # Finished handlers still publish their messages.
            self._actions.publish()
            raise self._batch_return.wait_at_gate(halted, self._halt_guard.gate) from None
        except BaseException as error:
            exit_if_told_to(error)
            if (comeback := self._batch_return.redeliver(error)) is None:
                return self._end()
            raise comeback from None
        finally:
            if self._limit_guard is not NO_LIMIT:
                self._limit_guard.end()
            self._telemetry.flush()

    def _last_will(self) -> None:
        """Mark and count the finished deliveries before a handler ends the process."""
        self._fates.flush(0)
        self._telemetry.flush()

    def note_pace(self) -> None:
        """Note the cost of the deliveries, for the batch size and the number handed off ahead."""
        self._telemetry.note_pace()

    def note_carrier(self) -> None:
        """Note which task carried the ended deliveries."""
        self._settlement.note_carrier(self._task.request.id)

    def run(self) -> Any:
        """Run the unsettled deliveries; then send on those that run later; then mark, and return."""
        self._lease.check()
        unsettled = find_unsettled(self._task, self._batch, self._fates, self._settlement, self._state)
        todo = process_loss.count_worker_losses(unsettled, self._headers)
        note_no_run(str(self._task.request.id), "" if todo else self._why_none_runs())
        if len(todo) == 1:
            # It may have been charged with losses.
            self._state.update(todo[0])
        if delivery_cost.follows_new_loss(self._headers):
            self._telemetry.count_lost_process()
        # After the loss of a process or a whole worker the deliveries run apart from each other.
        if follows_loss(self._headers) and len(todo) > 1 and self._batch.order is None:
            return self._schedule.break_up(todo)
        self._run_all(todo)
        self._settle_ended()
        return self._end()

    def _why_none_runs(self) -> str:
        if not self._is_single:
            return str(self._state.ends)
        return "its delivery was discarded" if self._fates.discarded else "its delivery was settled already"

    def _run_all(self, todo: list[Delivery]) -> None:
        if todo:
            self._halt_guard.check_message(todo)
            if self._limit_guard is not NO_LIMIT:
                self._limit_guard.begin(todo)
        if self._task.bulk is not None:
            self._run_in_bulk(todo)
            return
        is_automatic = self._task.concurrency == "auto" and self._batch.order != "partition"
        # After a loss one runs at a time, so that a second loss is charged to the delivery that ran.
        if self._batch.order == "partition" or follows_loss(self._headers):
            width = 1
        else:
            most = self._task.concurrency
            width = min(concurrency_meter.find_concurrency(self._task.name) if most == "auto" else most, len(todo))
        run = partial(self._run_side_by_side, width=width) if width > 1 else self._run_in_turn
        if not is_automatic:
            run(todo)
            return
        since, waited, processor = time.monotonic(), event_loop.read_waited(), time.process_time()
        run(todo)
        # In turn, what settles a delivery is no time of the loop's.
        took = self._telemetry.seconds if width == 1 else time.monotonic() - since
        waits = event_loop.read_waited()
        busy = time.process_time() - processor if waited is None or waits is None else took - (waits - waited)
        self._telemetry.note_concurrency(max(0.0, busy), width)

    def _run_in_bulk(self, todo: list[Delivery]) -> None:
        steps = DeliverySteps(
            self._lease.check,
            self._halt_guard.check,
            self._admission.prepare,
            self._actions.wait_for_breaker,
            self._actions.finish_together,
            self._actions.act,
            self._end_lap,
        )
        parts = (self._attempts, self._breaker_guard, self._judge, self._schedule, self._state, self._telemetry)
        self._result = BulkRun(self._task, self._batch, self._headers, steps, *parts).run(todo)

    def _end_lap(self, begun: float, ended: int) -> float:
        """Note how many deliveries ended since a time, publish what is due, and return when the next ones begin."""
        now = self._telemetry.laps.lap(begun, self._dead_letters.take_seconds(), ended) if ended else begun
        if not self._publication.is_due:
            return now
        self._actions.publish()
        return time.monotonic()

    def _run_side_by_side(self, todo: list[Delivery], width: int) -> None:
        attempts = find_attempt_classes().beside(self._task, self._batch, self._last_will, self._state)
        self._judge = FailureJudge(self._task, self._batch, attempts, self._schedule.parking)
        self._unique_guard.run_within_limits = attempts.run_judge
        if isinstance(self._limit_guard, LimitGuard):
            self._limit_guard.run_within_limits = attempts.run_judge
        steps = RunSteps(
            check=self._check,
            prepare=self._prepare_beside,
            settle=self._take_end_beside,
            catch_up=self._catch_up,
            put_back=lambda rest: self._schedule.put_back(rest, width),
            note_pace=self._telemetry.laps.add,
            give_up_ledger=self._fates.give_up_ledger,
        )
        until = time.monotonic() + self._task.batch_seconds
        run = ConcurrentRun(attempts, steps, width, self._batch.order, until)
        attempts.run_until_settled(lambda: run.run(todo))

    def _check(self) -> None:
        self._lease.check()
        self._halt_guard.check()

    def _prepare_beside(self, delivery: Delivery) -> AdmittedDelivery | None:
        guard = self._breaker_guard
        if self._task.breaker is not None:
            # A trial request is one delivery's.
            guard = BreakerGuard.for_task(self._task, self._batch.group)
        return self._admission.prepare(delivery, partial(self._admission.admit, guard=guard))

    def _catch_up(self) -> float | None:
        self._fates.flush()
        if self._publication.is_due:
            self._settle_ended()
        return PUBLISH_EVERY if self._publication.waits else None

    def _take_end_beside(self, admitted: AdmittedDelivery, ended: AttemptEnd) -> None:
        # Others began since.
        set_logged_delivery(admitted.delivery)
        self._find_end_taker()(admitted, ended)

    def _run_in_turn(self, todo: list[Delivery]) -> None:
        prepare, admit = self._admission.prepare, partial(self._admission.admit, guard=self._breaker_guard)
        check_lease, check_halt = self._lease.check, self._halt_guard.check
        run, take_end = self._attempts.run, self._find_end_taker()
        now = time.monotonic()
        until = now + self._task.batch_seconds
        for number, delivery in enumerate(todo):
            if number and now > until:
                self._schedule.put_back(todo[number:])
                return
            check_lease()
            check_halt()
            try:
                self._state.note_start(delivery)
                if (admitted := prepare(delivery, admit)) is not None:
                    take_end(admitted, run(admitted.delivery))
            finally:
                now = self._telemetry.laps.lap(now, self._dead_letters.take_seconds())
            if self._publication.is_due:
                self._actions.publish()
                now = time.monotonic()

    def _settle_ended(self) -> None:
        self._actions.publish()
        self._fates.flush()

    def _find_end_taker(self) -> Callable[[AdmittedDelivery, AttemptEnd], None]:
        return self._take_end if self._limit_guard is NO_LIMIT else self._take_limited_end

    def _take_limited_end(self, admitted: AdmittedDelivery, ended: AttemptEnd) -> None:
        """Settle a delivery whose handler has ended, and end its lease."""
        self._limit_guard.note_end(admitted.delivery, succeeded=ended.error is None)
        self._take_end(admitted, ended)
        if ended.error is None:
            self._limit_guard.note_settled(admitted.delivery)

    def _take_end(self, admitted: AdmittedDelivery, ended: AttemptEnd) -> None:
        """Settle a delivery whose handler has ended."""
        delivery, guard = admitted
        error = ended.error
        self._telemetry.count_run(ended.seconds, succeeded=error is None)
        if error is None:
            self._result = ended.returned
            guard.note_success()
            self._actions.finish(delivery)
            return
        if isinstance(error, SoftTimeLimitExceeded):
            self._telemetry.note_overrun()
        self._lease.check()
        self._fail(delivery, error, guard, ended.seconds)

    def _fail(
        self, delivery: Delivery, error: BaseException, guard: BreakerGuard, seconds: float | None = None
    ) -> None:
        """Decide on a failed delivery, and act."""
        now = time.time()
        self._actions.act(delivery, error, self._judge.decide(delivery, error, now, guard), now, seconds)

    def _fail_unnamed(self, delivery: Delivery, error: BaseException, guard: BreakerGuard) -> None:
        """Fail a delivery whose unique name cannot be found, as a run of its handler that failed at once."""
        self._telemetry.count_run(0.0, succeeded=False)
        self._fail(delivery, error, guard)

    def _end_duplicate(self, delivery: Delivery, record: str) -> None:
        """End a delivery without a run, because another record with its name is done."""
        self._result = self._telemetry.count_duplicate(delivery, record)
        self._actions.finish(delivery)

    def _end(self) -> Any:
        """Send on the deliveries that run later, and return the result."""
        self._lease.check()
        parked = self._schedule.send()
        if (summary := self._dead_letters.summarize(self._state.ends)) is not None:
            # For Flower a task with a dead letter has failed, however many of its batch were done.
            raise DeadLettered(summary)
        if self._is_single and parked:
            # For Flower it is a retried task too, although Kafka and not Celery sends it again.
            due = datetime.fromtimestamp(parked[0].due / 1000, UTC)
            raise Retry(parked[0].delivery.error, Failed(parked[0].delivery.error), due)
        return self._result if self._is_single else str(self._state.ends)
