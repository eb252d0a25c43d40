"""Time limits, of one message at a time: kept by the process that runs the handler.

Celery's own limits are a task's, and a task may carry many messages; they also go on counting while what was done is
marked. So here a thread watches the handler, and nothing but the handler. At the soft limit it sends the signal that
Celery sends. At the hard limit it ends the process, which the worker takes for any process that was lost with its
message. Celery's own hard limit stands behind that (tasks/worker/delivery_request.py), for a handler that no thread
can watch.
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

from tasks import logs
from tasks.declaration.message_task import MessageTask

logger = logs.harmless_logger(__name__)

_SOFT: Final = signal.SIGUSR1


class TimeLimits(NamedTuple):
    """Seconds that a handler may take for one message, `None` for any."""

    soft: float | None
    hard: float | None

    @classmethod
    def of(cls, task: MessageTask[..., Any]) -> "TimeLimits":
        """Those of the message in hand."""
        hard, soft = task.request.timelimit or (None, None)
        return cls.chosen(task, soft, hard)

    @classmethod
    def chosen(cls, task: Any, soft: float | None = None, hard: float | None = None) -> "TimeLimits":
        """What a message says, else the task, else the settings (`task_soft_time_limit`, `task_time_limit`)."""
        conf = task.app.conf
        soft = soft or task.soft_time_limit or conf.task_soft_time_limit
        return cls(soft or None, hard or task.time_limit or conf.task_time_limit or None)


class Watchdog:
    """Watches one handler at a time.

    Parameters:
        kill: ends the process.
    """

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._main = threading.main_thread().ident or 0
        self._changed = threading.Condition()
        self._soft_at: float | None = None
        self._hard_at: float | None = None
        self._wakes_at = 0.0
        self._last_will: Callable[[], None] = lambda: None
        #: Whether a delivery is executed now: then a soft limit is ours to say.
        self.executing = False
        self._running = self._overdue = False
        threading.Thread(target=self._watch, name="time limits", daemon=True).start()

    @contextmanager
    def watching(self, limits: TimeLimits, last_will: Callable[[], None]) -> Iterator[None]:
        """Keep the limits while the block runs.

        Parameters:
            last_will: done before the process ends.

        Raises:
            SoftTimeLimitExceeded: in the block, as Celery does.
        """
        now = time.monotonic()
        with self._changed:
            self._last_will, self._overdue, self._running = last_will, False, True
            self._soft_at = now + limits.soft if limits.soft else None
            self._hard_at = now + limits.hard if limits.hard else None
            if self._soonest() < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            # First of all: what has returned is not undone by a signal that comes now.
            self._running = False
            with self._changed:
                self._soft_at = self._hard_at = None

    def on_signal(self, *_: Any) -> None:
        """Python runs this in the main thread, perhaps after the handler has returned: then it is too late."""
        if not self.executing:
            raise SoftTimeLimitExceeded
        if self._overdue and self._running:
            self._overdue = False
            raise SoftTimeLimitExceeded

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                if self._hard_at is not None and now >= self._hard_at:
                    self._hard_at = None
                    with suppress(Exception):
                        self._last_will()
                    self._kill()
                elif self._soft_at is not None and now >= self._soft_at:
                    self._soft_at, self._overdue = None, True
                    signal.pthread_kill(self._main, _SOFT)
                else:
                    self._wakes_at = self._soonest()
                    self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)

    def _soonest(self) -> float:
        return min((at for at in (self._soft_at, self._hard_at) if at is not None), default=float("inf"))


_of_process: tuple[int, Watchdog] | None = None


def find_watchdog() -> Watchdog | None:
    """This process's, made when it is first wanted; `None` where there are no time limits (threads, solo)."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        if signal.getsignal(_SOFT) is not soft_timeout_sighandler:
            return None
        made = Watchdog(lambda: os.kill(os.getpid(), signal.SIGKILL))
        signal.signal(_SOFT, made.on_signal)
        _of_process = (os.getpid(), made)
    return _of_process[1]
