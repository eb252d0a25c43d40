"""The worker's main process side of one task: no end of it is silent.

Use: `class MyTask(celery.Task): Request = "lossless.worker.request:Request"; acks_late = True`, with
`worker_consumer = "lossless.worker.consumer:Consumer"` and the setting `burial_task` (see lossless/worker/consumer.py).

Celery calls these methods in the event loop of the worker: they must not block, and they publish nowhere but
to the Celery broker. `create_request_cls` (celery/worker/request.py) replaces `on_success` and
`execute_using_pool` in a class that it makes of this one; around its `on_success` stands what `__init_subclass__` adds.

What others see of an end that Celery tells nobody: events (Flower), signals, the result backend, the log.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from billiard.common import TERM_SIGNAME
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals
from celery.concurrency.base import BasePool
from celery.exceptions import InvalidTaskError, Reject, TaskRevokedError
from celery.platforms import signals as signal_numbers
from celery.utils.log import get_logger
from celery.worker import request, state
from kombu.asynchronous import get_event_loop
from kombu.utils.encoding import safe_repr

from lossless.worker.acknowledgement_bundle import BundledStep, unpack_bundle
from lossless.worker.header_validation import find_call_fault, find_eta_fault, find_header_fault
from lossless.worker.message_burial import (
    BurialFailure,
    Reason,
    get_burial_task,
    make_burial,
    make_comeback,
    read_count,
)
from lossless.worker.message_replacement import MessageReplacement, bury_message
from lossless.worker.poison_isolation import LOST_LIMIT, LOST_PAUSES, find_lost_pause, has_killed_processes
from lossless.worker.process_death import LOSS_HISTORY, add_to_history, describe_cause, describe_death, get_memory_kills
from lossless.worker.run_outcome import (
    REQUEUE_BACKOFF,
    ComeBack,
    RunOutcome,
    decide_outcome,
    read_reject_reason,
    unwrap_exception,
)

logger = get_logger(__name__)

DEATH_POLL = 0.02


class Request(request.Request):
    """A request whose message is acknowledged only when what follows it is in the broker.

    Raises `InvalidTaskError` for a message that no task can be run with; the consumer buries it. A task with
    early acknowledgement (`acks_late=False`) has given its message up when it starts: it ends as in Celery.
    """

    _message: Any
    _app: Any
    _args: Any
    _kwargs: Any
    _context: Any
    _eta: Any
    _apply_result: Any
    _already_cancelled: bool
    _terminate_on_ack: Any
    _terminated_by: int | None = None
    _overrun: Any = None
    _bundled_step: BundledStep | None = None
    _step: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "on_success" in vars(cls):
            cls.on_success = unpack_bundle(vars(cls)["on_success"])  # type: ignore[method-assign]

    def __init__(self, message: Any, *, headers: Any = None, **options: Any) -> None:
        fault = find_header_fault(message.headers if headers is None else headers)
        if fault:
            raise InvalidTaskError(fault)
        try:
            super().__init__(message, headers=headers, **options)
        except (TypeError, ValueError) as error:
            raise InvalidTaskError(f"its body is not that of a task: {error}") from error
        if fault := find_call_fault((self._args, self._kwargs, self._embed)):
            raise InvalidTaskError(fault)
        if self._eta is not None:
            self._check_eta(datetime.now(UTC))

    def _check_eta(self, now: datetime) -> None:
        if fault := find_eta_fault(self._eta, now):
            raise InvalidTaskError(fault)
        if self._eta <= now:
            # Celery would put it into its timer all the same, past the prefetch limit (celery/worker/strategy.py).
            self._eta = None

    @property
    def _embed(self) -> Any:
        return self.__payload[2]  # type: ignore[attr-defined]  # Celery's own: a class of the same name

    # ---- how a run begins and ends

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Note in Redis that a process or thread has begun, so that a dead worker's running messages are known."""
        if hasattr(self._message.channel, "begun"):
            self._message.channel.begun(self._message.delivery_tag)
        super().on_accepted(pid, time_accepted)

    def acknowledge(self) -> None:
        """Acknowledge together with the bundled step; if the message is settled already, do the step alone."""
        step, self._bundled_step = self._bundled_step, None
        if step is not None:
            self._step = self._message.channel.bundle_with_ack(self._message.delivery_tag, *step)
        super().acknowledge()

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Handle every end but success; acknowledge only a message whose successor is in the broker."""
        error = unwrap_exception(exc_info.exception)
        ending = decide_outcome(error, returned=return_ok, internal=bool(getattr(exc_info, "internal", False)))
        if self._terminated_by is not None and ending is RunOutcome.LOST:
            self._announce_revoked("terminated", True, self._terminated_by, False)
        elif type(error).__name__ == "Terminated":
            super().on_failure(exc_info, send_failed_event, return_ok)
        elif self._given_back(ending):
            state.task_ready(self)
        elif isinstance(error, TimeLimitExceeded) and not return_ok and not self.acknowledged:
            self._overrun = exc_info  # its process still runs: on_timeout goes on from here
        elif self.acknowledged or ending is RunOutcome.SETTLED:
            self._settled(error, exc_info, send_failed_event, return_ok)
        else:
            self._end(ending, error, exc_info)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Note that a limit was overrun; a hard limit ends a run only when its process is dead.

        billiard reports the limit first and kills afterwards, within this very call (billiard/pool.py,
        `on_hard_timeout`): given out again before that, the message could run twice at once.
        """
        if soft or self._overrun is None:
            super().on_timeout(soft, timeout)
            return
        logger.error("Hard time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id)
        self._when_dead()

    def terminate(self, pool: BasePool, signal: Any = None) -> None:
        """Kill the process of a task that is revoked while it runs; it counts as revoked when the process is gone."""
        number = signal_numbers.signum(signal or TERM_SIGNAME)
        if self.time_start:
            self._terminated_by = number
            pool.terminate_job(self.worker_pid, number)
        else:
            self._terminate_on_ack = pool, signal
        result = self._apply_result() if self._apply_result is not None else None
        if result is not None:
            result.terminate(number)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        if not self.acknowledged:
            self._bury_or_repeat("expired" if expired else "revoked", BurialFailure.of(TaskRevokedError(reason)))
        super()._announce_revoked(reason, terminated, signum, expired)  # type: ignore[misc]

    # ---- steps

    def _given_back(self, ending: RunOutcome) -> bool:
        """Return whether the process ended because the worker stops or lost its connection.

        The message stays unacknowledged and is given back when the channel closes; that death is not counted.
        """
        if self.acknowledged or ending not in (RunOutcome.LOST, RunOutcome.FAILED):
            return False
        return self._already_cancelled or (ending is RunOutcome.LOST and _stopping())

    def _settled(self, error: BaseException, exc_info: Any, send_failed_event: bool, return_ok: bool) -> None:
        if not isinstance(error, MemoryError):
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        # Celery raises a MemoryError on, which stops the whole worker (celery/worker/request.py, on_failure).
        state.task_ready(self)
        self.acknowledge()
        self.send_event("task-failed", exception=safe_repr(error), traceback=exc_info.traceback)

    def _end(self, ending: RunOutcome, error: BaseException, exc_info: Any) -> None:
        """Settle a run that ended in no other way."""
        if isinstance(error, WorkerLostError) and self._success_was_stored():  # type: ignore[attr-defined]
            super().on_failure(exc_info)
            return
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            exc_info = self._worker_lost_info(error)  # type: ignore[attr-defined]
            error = unwrap_exception(exc_info.exception)
        state.task_ready(self)
        failure = _make_failure(error, exc_info.traceback or "")
        if ending is RunOutcome.LOST:
            self._count_lost(failure, error, exc_info)
        elif ending is RunOutcome.REQUEUED:
            self._repeat(failure, error, exc_info)
        else:
            reason: Reason = "rejected" if ending is RunOutcome.REJECTED else "failed"
            if self._bury_or_repeat(reason, failure):
                tell_failed(self, error, exc_info)

    def _count_lost(self, failure: BurialFailure, error: BaseException, exc_info: Any) -> None:
        conf = self._app.conf
        cause = describe_cause(error, get_memory_kills().more())
        changed = {**self.after_loss(cause), LOSS_HISTORY: add_to_history(self._message.headers, cause, time.time())}
        lost = read_count(changed, "lost")
        if has_killed_processes(lost, conf.get("lost_limit", LOST_LIMIT)) and not self._buries:
            # Where the pool itself raised the error, its traceback tells nothing of the task.
            own = "" if isinstance(error, WorkerLostError | TimeLimitExceeded) else f"\n\n{failure.traceback}"
            last = BurialFailure(failure.name, describe_death(cause, lost), "\n".join(changed[LOSS_HISTORY]) + own)
            bury_message(self._app, self._message, make_burial(self._message, "poison", last, changed=changed))
            self.acknowledged = True
            tell_failed(self, error, exc_info)
            return
        pause = find_lost_pause(lost, conf.get("lost_pauses", LOST_PAUSES))
        why = f"process lost {lost} times, again in {pause} s: {cause}"
        self._replace_by_copy(pause, why, **changed)
        tell_retried(self, error, exc_info, why)

    def after_loss(self, cause: str) -> Mapping[str, Any]:
        """The headers with which the message comes back after its process was lost: among them `lost`, by which it is
        poison or not.

        An application whose messages carry many things says here how far the process had come, and charges the one
        that it was lost with.

        Parameters:
            cause: what took the process, in words.
        """
        return {"lost": read_count(self._message.headers, "lost") + 1}

    def _repeat(self, failure: BurialFailure, error: BaseException, exc_info: Any) -> None:
        if isinstance(error, ComeBack) and error.gate:
            self._wait_at_gate(error)
            tell_retried(self, error, exc_info, failure.message, logging.INFO)
            return
        why = self._come_back(failure, error.headers if isinstance(error, ComeBack) else {})
        tell_retried(self, error, exc_info, why)

    def _bury_or_repeat(self, reason: Reason, failure: BurialFailure) -> bool:
        """Bury the message; a burial itself is never buried but repeated until it succeeds."""
        if self._buries:
            logger.critical("Burial %s ended as %s and is repeated: %s", self.id, reason, failure.message)
            state.revoked.discard(self.id)
            self._come_back(failure, {})
            return False
        bury_message(self._app, self._message, make_burial(self._message, reason, failure))
        self.acknowledged = True
        return True

    def _wait_at_gate(self, error: ComeBack) -> None:
        """Let the message wait in the broker if its transport has gates; that counts as no failure."""
        gates = hasattr(self._message.channel, "gates")
        why = str(read_reject_reason(error))
        made = make_comeback(self._message, 0.0 if gates else error.after, why, **error.headers)
        MessageReplacement(
            self._message, replace(made, gate=error.gate, first=error.first, eta=None) if gates else made
        ).start()
        self.acknowledged = True

    def _come_back(self, failure: BurialFailure, headers: Mapping[str, Any]) -> str:
        requeued = read_count(self._message.headers, "requeued") + 1
        pause = REQUEUE_BACKOFF.compute_pause(requeued - 1)
        why = f"put back {requeued} times, again in {pause} s: {failure.name}: {failure.message}"
        self._replace_by_copy(pause, why, **{**headers, "requeued": requeued})
        return why

    def _replace_by_copy(self, pause: float, why: str, **headers: Any) -> None:
        MessageReplacement(self._message, make_comeback(self._message, pause, why, **headers)).start()
        self.acknowledged = True  # Celery's own ways to acknowledge must do nothing from here on

    @property
    def _buries(self) -> bool:
        return self.type == get_burial_task(self._app)

    def _when_dead(self) -> None:
        """Continue after a hard time limit as soon as the process that overran is gone."""
        loop = get_event_loop()
        if loop is not None and _is_alive(int(self.worker_pid or 0)):
            loop.call_later(DEATH_POLL, self._when_dead)
            return
        exc_info, self._overrun = self._overrun, None
        error = unwrap_exception(exc_info.exception)
        if self._given_back(RunOutcome.LOST):
            state.task_ready(self)
        elif self._terminated_by is not None:
            self._announce_revoked("terminated", True, self._terminated_by, False)
        else:
            self._end(RunOutcome.LOST, error, exc_info)


def _stopping() -> bool:
    # The exit codes that Celery keeps here may be 0 (celery/worker/state.py, maybe_shutdown).
    flags: tuple[Any, ...] = (state.should_stop, state.should_terminate)
    return any(flag is not None and flag is not False for flag in flags)


def _make_failure(error: BaseException, traceback: str) -> BurialFailure:
    reason = read_reject_reason(error) if isinstance(error, Reject) else None
    if isinstance(reason, BaseException):
        return BurialFailure.of(reason, traceback)
    failure = BurialFailure.of(error, traceback)
    return failure if reason is None else BurialFailure(failure.name, str(reason), traceback)


def _is_alive(pid: int) -> bool:
    """Return whether a process exists. The pool reaps its children, so a dead one soon does not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def tell_failed(request: Any, error: Any, exc_info: Any) -> None:
    """Report that a request has failed for good."""
    logger.error("Task %s[%s] ended: %r", request.name, request.id, error)
    with _log_errors("result backend"):
        request.task.backend.mark_as_failure(
            request.id, error, request=request._context, store_result=request.store_errors
        )
    request.task.request_stack.push(request._context)
    try:
        signals.task_failure.send(
            sender=request.task, task_id=request.id, exception=error, args=request.args, kwargs=request.kwargs,
            traceback=exc_info.traceback, einfo=exc_info,
        )  # fmt: skip
    finally:
        request.task.request_stack.pop()
    request.send_event("task-failed", exception=safe_repr(error), traceback=exc_info.traceback)


def tell_retried(request: Any, error: Any, exc_info: Any, why: str, level: int = logging.WARNING) -> None:
    """Report that a request is retried; `why` is for the log."""
    logger.log(level, "Task %s[%s] %s", request.name, request.id, why)
    if request.store_errors:
        with _log_errors("result backend"):
            request.task.backend.mark_as_retry(request.id, error, exc_info.traceback, request=request._context)
    request.send_event("task-retried", exception=safe_repr(error), traceback=exc_info.traceback)


@contextmanager
def _log_errors(what: str) -> Iterator[None]:
    """Log the error of a block and suppress it: the delivery is settled already."""
    try:
        yield
    except Exception as error:
        logger.error("%s: %r", what, error)
