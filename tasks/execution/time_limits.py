"""The time limits of one message at a time, enforced in the process that runs the handler.

Celery's own limits are for a task, which may carry many messages, and they include the settlement. So a thread watches
the handler alone. At the soft limit it sends Celery's signal. At the hard limit it ends the process, which the worker
treats as lost. Celery's own hard limit remains as a backstop (tasks/worker/delivery_request.py), for a handler that no
thread can watch.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from billiard.exceptions import SoftTimeLimitExceeded
from billiard.pool import soft_timeout_sighandler

from lossless.background_thread import start_thread
from tasks import logs
from tasks.declaration.message_task import MessageTask
from tasks.execution.execution_settings import ExecutionSettings, read_execution_settings

logger = logs.harmless_logger(__name__)

_SOFT: Final = signal.SIGUSR1


class TimeLimits(NamedTuple):
    """The seconds that a handler may take for one message; `None`: no limit."""

    soft: float | None
    hard: float | None

    @classmethod
    def from_request(cls, task: MessageTask[..., Any]) -> "TimeLimits":
        """Return the limits of a task's current message."""
        hard, soft = task.request.timelimit or (None, None)
        return cls.chosen(task, read_execution_settings(task.app), soft, hard)

    @classmethod
    def chosen(
        cls, task: Any, settings: ExecutionSettings, soft: float | None = None, hard: float | None = None
    ) -> "TimeLimits":
        """Return the limits of the message, the task, or the settings (`task_soft_time_limit`, `task_time_limit`)."""
        soft = soft or task.soft_time_limit or settings.soft_time_limit
        return cls(soft or None, hard or task.time_limit or settings.time_limit or None)


class WatchedRun:
    """A handler's run in its time limits.

    Parameters:
        last_will: called before the process ends, in the watchdog's thread.
        strike: called in the main thread at the soft limit; returns whether to raise the error there. `None`: raise.
    """

    __slots__ = ("hard_at", "is_overdue", "is_running", "last_will", "soft_at", "strike")

    def __init__(
        self, limits: TimeLimits, last_will: Callable[[], None], strike: Callable[[], bool] | None = None
    ) -> None:
        now = time.monotonic()
        self.soft_at = now + limits.soft if limits.soft else None
        self.hard_at = now + limits.hard if limits.hard else None
        self.last_will, self.strike = last_will, strike
        self.is_overdue, self.is_running = False, True

    @property
    def next_at(self) -> float:
        """When its next limit is reached."""
        return min((at for at in (self.soft_at, self.hard_at) if at is not None), default=float("inf"))


class Watchdog:
    """The watchdog of the handlers that run: one, or several on an event loop.

    Parameters:
        kill: ends the process.
    """

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._main = threading.main_thread().ident or 0
        self._changed = threading.Condition()
        self._runs: set[WatchedRun] = set()
        self._wakes_at = 0.0
        #: Whether a batch runs now: then the watchdog decides on soft limits.
        self._batch_runs = False
        start_thread("time limits", self._watch)

    def begin_batch(self) -> None:
        """Note that a batch runs: from now on the watchdog decides on soft limits."""
        self._batch_runs = True

    def end_batch(self) -> None:
        """Note that no batch runs any more."""
        self._batch_runs = False

    @contextmanager
    def watching(self, limits: TimeLimits, last_will: Callable[[], None]) -> Iterator[None]:
        """Enforce the limits while the block runs.

        Parameters:
            last_will: called before the process ends.

        Raises:
            SoftTimeLimitExceeded: in the block, as Celery does.
        """
        with self.watch(WatchedRun(limits, last_will)):
            yield

    @contextmanager
    def watch(self, run: WatchedRun) -> Iterator[None]:
        """Enforce a run's limits while the block runs."""
        with self._changed:
            self._runs.add(run)
            if run.next_at < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            # First: a handler that has returned must not be undone by a late signal.
            run.is_running = False
            with self._changed:
                self._runs.discard(run)

    def on_signal(self, *_: Any) -> None:
        """Raise the soft limit in the main thread, unless the handler has already returned."""
        if not self._batch_runs:
            raise SoftTimeLimitExceeded
        overdue = [run for run in list(self._runs) if run.is_overdue and run.is_running]
        for run in overdue:
            run.is_overdue = False
        # Those that wait are cancelled before the one whose code runs raises.
        struck = [run for run in overdue if run.strike is None or run.strike()]
        if struck:
            raise SoftTimeLimitExceeded

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                if not self._enforce(now):
                    self._wakes_at = min((run.next_at for run in self._runs), default=float("inf"))
                    self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)

    def _enforce(self, now: float) -> bool:
        """Enforce the limits that are reached now, and return whether there were any."""
        reached = [run for run in self._runs if now >= run.next_at]
        for run in reached:
            if run.hard_at is not None and now >= run.hard_at:
                run.hard_at = None
                with suppress(Exception):
                    run.last_will()
                self._kill()
        if overdue := [run for run in reached if run.soft_at is not None and now >= run.soft_at]:
            for run in overdue:
                run.soft_at, run.is_overdue = None, True
            signal.pthread_kill(self._main, _SOFT)
        return bool(reached)


_of_process: tuple[int, Watchdog] | None = None


def find_watchdog() -> Watchdog | None:
    """Return this process's watchdog, made at the first call; `None` in pools without time limits (threads, solo)."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        if signal.getsignal(_SOFT) is not soft_timeout_sighandler:
            return None
        made = Watchdog(lambda: os.kill(os.getpid(), signal.SIGKILL))
        signal.signal(_SOFT, made.on_signal)
        _of_process = (os.getpid(), made)
    return _of_process[1]
