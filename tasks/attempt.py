"""One attempt at a delivery: its handler runs within its time limits, and how that ended is told, not acted on."""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from celery.exceptions import WorkerShutdown, WorkerTerminate

from bridge.errors import AlreadySettled
from bridge.records.message import Batch, Delivery
from tasks import observing
from tasks.limits import Limits, watchdog
from tasks.running import MessageTask, Run

logger = observing.log(__name__)

T = TypeVar("T")


class Ended(NamedTuple):
    """How an attempt ended: what the handler returned, or why it is to be asked again.

    Attributes:
        error: what it raised or asked for; `None`: its work is committed.
    """

    seconds: float
    returned: Any = None
    error: BaseException | None = None


class Attempts:
    """The attempts of one run of a task, one after another.

    Parameters:
        batch: whose deliveries they are.
        last_will: done before the process ends, on the way out of a handler that is ended or by another thread.
    """

    def __init__(self, task: MessageTask[..., Any], batch: Batch, last_will: Callable[[], None]) -> None:
        self._task, self._what, self._last_will = task, str(batch), last_will
        self._run = Run(task, group=batch.group)
        self._limits = Limits.of(task)
        self._watchdog = watchdog() if any(self._limits) else None

    def at(self, delivery: Delivery) -> Ended:
        """Run the handler on a delivery's message to its end.

        Raises:
            WorkerShutdown, WorkerTerminate, SystemExit: the worker ends, or this process is told to.
        """
        run, started = self._run, time.monotonic()
        run.failures, run.asked = delivery.attempts.failed, None
        try:
            with run:
                returned = self._within_limits(lambda: self._task.call(delivery.message))
            return Ended(time.monotonic() - started, returned, run.asked)
        except (WorkerShutdown, WorkerTerminate):
            raise
        except AlreadySettled:
            logger.info("%s: its work is committed already: not done again.", delivery.identity)
            return Ended(time.monotonic() - started)
        except BaseException as error:
            # Also SystemExit, GeneratorExit and MemoryError: Celery would acknowledge, or stop the worker.
            if terminate_handler_fired():
                self._last_will()
            leave_if_told_to(error)
            return Ended(time.monotonic() - started, error=error)

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


def leave_if_told_to(error: BaseException) -> None:
    """End the process if that is why the handler ended: a hard time limit, a revoke, a shutdown.

    billiard ends a child by SIGTERM, which raises SystemExit in whatever it runs. What becomes of the delivery is
    then the main process's to say (lossless/worker/request.py); settled here as well, it would run twice.
    """
    if terminate_handler_fired():
        raise error if isinstance(error, SystemExit) else SystemExit(os.EX_SOFTWARE)
