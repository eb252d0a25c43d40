"""One attempt at a delivery: the handler runs within its time limits; policy and breaker decide on a failure."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from celery.exceptions import WorkerShutdown, WorkerTerminate

from bridge.errors import AlreadySettled
from bridge.formats.delivery import Batch, Delivery
from tasks import logs
from tasks.declaration.bulk_messages import BulkCall
from tasks.declaration.message_task import HandlerRun, MessageTask
from tasks.errors import RetryAsked
from tasks.execution import delivery_log
from tasks.execution.batch_progress import BatchState
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.retry_schedule import RetryParker
from tasks.execution.time_limits import TimeLimits, find_watchdog
from tasks.policy.effective_decisions import find_effective_policy
from tasks.policy.failure_decision import FailureDecision, decide_failure, is_listed
from tasks.policy.retry_policy import RetryPolicy

logger = logs.harmless_logger(__name__)

T = TypeVar("T")


class AttemptEnd(NamedTuple):
    """The end of an attempt: the handler's result, or its error.

    Attributes:
        error: the exception that it raised or the retry that it asked for; `None`: its work is committed.
    """

    seconds: float
    returned: Any = None
    error: BaseException | None = None


class HandlerAttempts:
    """The attempts of one run of a task, one after another.

    Parameters:
        batch: the batch of the deliveries.
        last_will: called before the process ends, in the handler's thread or in another.
        state: is told of a hard time limit that ends the process.
    """

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, last_will: Callable[[], None], state: BatchState
    ) -> None:
        self._task, self._batch, self._last_will, self._state = task, batch, last_will, state
        self._run = HandlerRun(task, group=batch.group)
        self._limits = TimeLimits.from_request(task)
        self._watchdog = find_watchdog() if any(self._limits) else None

    def run(self, delivery: Delivery) -> AttemptEnd:
        """Run the handler on a delivery's message to its end, and return that end.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: the worker ends, or this process must.
        """
        run, started = self._run, time.monotonic()
        run.begin(delivery.attempts.failed)
        try:
            with run:
                returned = (
                    self._task.call(delivery.message)
                    if self._watchdog is None
                    else self._within_limits(lambda: self._task.call(delivery.message))
                )
            return AttemptEnd(time.monotonic() - started, returned, run.asked)
        except BaseException as error:
            return self.end_of_error(delivery, error, started)

    def run_bulk(self, call: BulkCall, deliveries: Sequence[Delivery]) -> AttemptEnd:
        """Run a bulk handler on the messages of a call to its end, and return that end.

        Parameters:
            deliveries: of the messages; the handler's own `self.retry()` counts the failures of the first.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: as `run`.
        """
        run, started = self._run, time.monotonic()
        run.begin(deliveries[0].attempts.failed)
        try:
            with run:
                returned = self._within_limits(lambda: self._task.call_bulk(call))
            return AttemptEnd(time.monotonic() - started, returned, run.asked)
        except BaseException as error:
            return self._end_failed(error, started)

    def end_of_error(self, delivery: Delivery, error: BaseException, started: float) -> AttemptEnd:
        """Return the end of an attempt whose handler raised. Call it in the handler of `error`.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: as `run`.
        """
        if isinstance(error, AlreadySettled):
            logger.info("%s: its work is committed already, and is not repeated.", delivery.identity)
            return AttemptEnd(time.monotonic() - started)
        return self._end_failed(error, started)

    def _end_failed(self, error: BaseException, started: float) -> AttemptEnd:
        # Also SystemExit, GeneratorExit and MemoryError are its errors: Celery would acknowledge, or stop the worker.
        if self.is_ending and not isinstance(error, WorkerShutdown | WorkerTerminate):
            self._last_will()
        raise_if_ending(error)
        return AttemptEnd(time.monotonic() - started, error=error)

    @property
    def is_ending(self) -> bool:
        """Whether this process was told to end."""
        return bool(terminate_handler_fired())

    def run_judge(self, delivery: Delivery, judge: Callable[[], T]) -> T:
        """Run a policy that calls a function of the user's, within the handler's time limits once more.

        Parameters:
            delivery: the one that is judged.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: as `run`.
        """
        try:
            return self._judge_within_limits(delivery, judge)
        finally:
            if self.is_ending:
                self._last_will()
                raise SystemExit(os.EX_SOFTWARE)

    def _judge_within_limits(self, delivery: Delivery, judge: Callable[[], T]) -> T:
        return self._within_limits(judge)

    def _within_limits(self, call: Callable[[], T]) -> T:
        if self._watchdog is None:
            return call()
        with self._watchdog.watching(self._limits, self._overran):
            return call()

    def _overran(self, name: str = "") -> None:
        """Note and log the overrun, and call the last will, in the watchdog's thread, which has no request."""
        self._state.note_overrun()
        logger.error("%s: its handler overran its hard time limit of %g s.", name or self._batch, self._limits.hard)
        self._last_will()


def exit_if_told_to(error: BaseException) -> None:
    """End the process if the handler ended for that reason: a hard time limit, a revoke, a shutdown.

    billiard ends a child by SIGTERM, which raises SystemExit in the running code. The main process then settles the
    delivery (lossless/worker/request.py); settled here as well, it would run twice.
    """
    if terminate_handler_fired():
        raise error if isinstance(error, SystemExit) else SystemExit(os.EX_SOFTWARE)


def raise_if_ending(error: BaseException) -> None:
    """Raise an error of a function of the user's if it ends the worker or this process; else it is that function's own.

    Raises:
        WorkerShutdown, WorkerTerminate, SystemExit: the worker ends, or this process must.
    """
    if isinstance(error, WorkerShutdown | WorkerTerminate):
        raise error
    exit_if_told_to(error)


def find_cause(error: BaseException) -> BaseException:
    """Return the error that made a handler ask for a retry; else the error that it raised."""
    return error.error if isinstance(error, RetryAsked) and error.error else error


class FailureJudge:
    """The judge of the failures of one batch's deliveries.

    Parameters:
        attempts: runs a function of the user's within the time limits.
        parker: knows how long a wait really is.
    """

    def __init__(
        self,
        task: MessageTask[..., Any],
        batch: Batch,
        attempts: HandlerAttempts,
        parker: RetryParker,
    ) -> None:
        self._task, self._group = task, batch.group
        self._attempts, self._parker = attempts, parker

    def decide(self, delivery: Delivery, error: BaseException, now: float, guard: BreakerGuard) -> FailureDecision:
        """Return the decision on a failed delivery.

        Parameters:
            now: seconds since the epoch.
            guard: the breaker's, which admitted it.
        """
        policy, cause = find_effective_policy(self._task, self._group), find_cause(error)
        decision = self._by_policy(policy, delivery, error, now)
        return guard.decide(delivery, cause, decision, self._is_its_own(policy, cause))

    def _is_its_own(self, policy: RetryPolicy, cause: BaseException) -> bool:
        """Return whether a person has declared at run time that the error is the message's own (`dead_letter_for`)."""
        named = policy.dead_letter_for
        return named != self._task.policy.dead_letter_for and is_listed(cause, named)

    def _by_policy(self, policy: RetryPolicy, delivery: Delivery, error: BaseException, now: float) -> FailureDecision:
        failed, real = delivery.attempts.failed, self._parker.real
        age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
        if policy.retry_when is None:
            return decide_failure(policy, error, failed, age, real=real, once=delivery.once)
        return self._attempts.run_judge(
            delivery,
            lambda: decide_failure(
                policy,
                error,
                failed,
                age,
                real=real,
                once=delivery.once,
                message=delivery.message,
                report=lambda fault: delivery_log.log_refused_answer(delivery, fault),
            ),
        )
