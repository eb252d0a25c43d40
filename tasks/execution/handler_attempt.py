"""One attempt at a delivery: its handler runs within its time limits, and the policy and the circuit breaker decide
what becomes of a failure.
"""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from celery.exceptions import WorkerShutdown, WorkerTerminate

from bridge.errors import AlreadySettled
from bridge.formats.delivery import Batch, Delivery
from tasks import logs
from tasks.declaration.message_task import HandlerRun, MessageTask
from tasks.errors import RetryAsked
from tasks.execution import delivery_log
from tasks.execution.breaker_guard import BreakerGuard
from tasks.execution.retry_schedule import RetryPlacement
from tasks.execution.time_limits import TimeLimits, find_watchdog
from tasks.policy.effective_decisions import find_effective_policy
from tasks.policy.retry_policy import RetryDecision, RetryPolicy, is_listed

logger = logs.harmless_logger(__name__)

T = TypeVar("T")


class AttemptEnd(NamedTuple):
    """How an attempt ended: what the handler returned, or why it is to be asked again.

    Attributes:
        error: what it raised or asked for; `None`: its work is committed.
    """

    seconds: float
    returned: Any = None
    error: BaseException | None = None


class HandlerAttempts:
    """The attempts of one run of a task, one after another.

    Parameters:
        batch: whose deliveries they are.
        last_will: done before the process ends, on the way out of a handler that is ended or by another thread.
    """

    def __init__(self, task: MessageTask[..., Any], batch: Batch, last_will: Callable[[], None]) -> None:
        self._task, self._what, self._last_will = task, str(batch), last_will
        self._run = HandlerRun(task, group=batch.group)
        self._limits = TimeLimits.of(task)
        self._watchdog = find_watchdog() if any(self._limits) else None

    def at(self, delivery: Delivery) -> AttemptEnd:
        """Run the handler on a delivery's message to its end.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: the worker ends, or this process is told to.
        """
        run, started = self._run, time.monotonic()
        run.failures, run.asked = delivery.attempts.failed, None
        try:
            with run:
                returned = self._within_limits(lambda: self._task.call(delivery.message))
            return AttemptEnd(time.monotonic() - started, returned, run.asked)
        except (WorkerShutdown, WorkerTerminate):
            raise
        except AlreadySettled:
            logger.info("%s: its work is committed already: not done again.", delivery.identity)
            return AttemptEnd(time.monotonic() - started)
        except BaseException as error:
            # Also SystemExit, GeneratorExit and MemoryError: Celery would acknowledge, or stop the worker.
            if terminate_handler_fired():
                self._last_will()
            exit_if_told_to(error)
            return AttemptEnd(time.monotonic() - started, error=error)

    def judged(self, judge: Callable[[], T]) -> T:
        """What a policy says that asks a function of the user's: it has the time that the handler has, once more.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: as `at`.
        """
        try:
            return self._within_limits(judge)
        finally:
            if terminate_handler_fired():
                self._last_will()
                raise SystemExit(os.EX_SOFTWARE)

    def _within_limits(self, call: Callable[[], T]) -> T:
        if self._watchdog is None:
            return call()
        with self._watchdog.watching(self._limits, self._overran):
            return call()

    def _overran(self) -> None:
        """Done by another thread, which knows no request."""
        logger.error("%s: its handler overran its hard time limit of %g s.", self._what, self._limits.hard)
        self._last_will()


def exit_if_told_to(error: BaseException) -> None:
    """End the process if that is why the handler ended: a hard time limit, a revoke, a shutdown.

    billiard ends a child by SIGTERM, which raises SystemExit in whatever it runs. What becomes of the delivery is
    then the main process's to say (lossless/worker/request.py); settled here as well, it would run twice.
    """
    if terminate_handler_fired():
        raise error if isinstance(error, SystemExit) else SystemExit(os.EX_SOFTWARE)


def find_cause(error: BaseException) -> BaseException:
    """What made a handler ask for a retry; else what it raised."""
    return error.error if isinstance(error, RetryAsked) and error.error else error


class FailureJudge:
    """For the deliveries of one batch.

    Parameters:
        attempts: within whose time limits a function of the user's is asked.
        parking: which knows how long a wait really is.
    """

    def __init__(
        self,
        task: MessageTask[..., Any],
        batch: Batch,
        attempts: HandlerAttempts,
        parking: RetryPlacement,
        breaking: BreakerGuard,
    ) -> None:
        self._task, self._group = task, batch.group
        self._attempts, self._parking, self._breaker_guard = attempts, parking, breaking

    def decision(self, delivery: Delivery, error: BaseException, now: float) -> RetryDecision:
        """What is to be done with it.

        Parameters:
            now: seconds since the epoch.
        """
        policy, cause = find_effective_policy(self._task, self._group), find_cause(error)
        decision = self._by_policy(policy, delivery, error, now)
        return self._breaker_guard.judged(delivery, cause, decision, self._is_its_own(policy, cause))

    def _is_its_own(self, policy: RetryPolicy, cause: BaseException) -> bool:
        """Whether a person has named the error, while workers run, as one to die of: it tells nothing more."""
        named = policy.dead_letter_for
        return named != self._task.policy.dead_letter_for and is_listed(cause, named)

    def _by_policy(self, policy: RetryPolicy, delivery: Delivery, error: BaseException, now: float) -> RetryDecision:
        failed, real = delivery.attempts.failed, self._parking.real
        age = 0.0 if delivery.first_failed_at is None else now - delivery.first_failed_at / 1000
        if policy.retry_when is None:
            return policy.decide(error, failed, age, real=real, once=delivery.once)
        return self._attempts.judged(
            lambda: policy.decide(
                error,
                failed,
                age,
                real=real,
                once=delivery.once,
                message=delivery.message,
                report=lambda fault: delivery_log.log_refused_answer(delivery, fault),
            )
        )
