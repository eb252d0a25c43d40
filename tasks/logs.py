"""The worker's log: fields that name the delivery of a line, summaries of equal lines, and loggers whose errors harm no
delivery. With a logging configuration of your own, put `WithDelivery` on your log handlers.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec

from bridge.formats.delivery import Delivery
from bridge.formats.log_format import OneLine, json_formatter
from bridge.formats.trace_context import find_trace_id
from lossless.background_thread import start_timer
from tasks.errors import DeadLettered

#: The lines of one kind that a process writes in a window, and the window's seconds; further lines are counted.
LINES: Final = 10
WINDOW: Final = 60.0

_current: ContextVar[Delivery | None] = ContextVar("delivery", default=None)
#: The task that began last, by its id, and why its handler does not run; empty if it does.
_without_run: ContextVar[tuple[str, str] | None] = ContextVar("without_run", default=None)


def set_logged_delivery(delivery: Delivery | None) -> None:
    """Set the delivery that the next log lines are about, or none."""
    _current.set(delivery)


def note_no_run(task_id: str, why: str) -> None:
    """Note why a task's handler runs for none of its deliveries, for Celery's line of its success; empty: it runs."""
    _without_run.set((task_id, why))


class WithDelivery(logging.Filter):
    """A filter that adds to a line `delivery`, `handler`, `topic`, `partition`, `offset`, `attempt`, `trace_id`.

    Fields that a line already has stay. Outside of a delivery `delivery` and `trace_id` are empty, so that a format may
    name them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every line passes."""
        delivery = _current.get()
        fields: dict[str, Any] = {"delivery": "", "trace_id": ""}
        if delivery is not None:
            message = delivery.message
            fields = {
                "delivery": delivery.identity,
                "handler": delivery.handler,
                "topic": message.topic,
                "partition": message.partition,
                "offset": message.offset,
                "attempt": message.attempt,
                "trace_id": find_trace_id(message.headers, delivery.trace),
            }
        for name, value in fields.items():
            record.__dict__.setdefault(name, value)
        return True


class NotTwice(logging.Filter):
    """A filter that drops Celery's own line for a dead letter: this project's line has the error, and is summarized."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is another line."""
        data = vars(record).get("data")
        return not (isinstance(data, dict) and str(data.get("exc")).startswith(DeadLettered.__name__))


class NoSuccessWithoutRun(logging.Filter):
    """A filter that rewrites Celery's line "succeeded" of a task whose handler did not run (celery/app/trace.py)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every line passes."""
        noted, data = _without_run.get(), record.args
        if noted and noted[1] and isinstance(data, Mapping) and "return_value" in data and data.get("id") == noted[0]:
            record.msg = "Task %(name)s[%(id)s] ended and its handler did not run: " + noted[1].replace("%", "%%")
        return True


class NotWhatIsCarried(logging.Filter):
    """A filter that drops Celery's DEBUG line with all arguments of a task, the record among them
    (celery/concurrency/base.py apply_async).
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is another line."""
        return not str(record.msg).startswith("TaskPool: Apply")


def dress_logger(logger: logging.Logger) -> None:
    """Add the delivery's fields and the format of WORKER_LOG_FORMAT to the handlers of a logger of Celery's."""
    own = (("celery.app.trace", NotTwice), ("celery.app.trace", NoSuccessWithoutRun), ("celery.pool", NotWhatIsCarried))
    for name, line_filter in own:
        source = logging.getLogger(name)
        if not any(isinstance(known, line_filter) for known in source.filters):
            source.addFilter(line_filter())
    for handler in logger.handlers:
        if not any(isinstance(known, WithDelivery) for known in handler.filters):
            handler.addFilter(WithDelivery())
        if os.environ.get("WORKER_LOG_FORMAT") == "json":
            handler.setFormatter(json_formatter())
        elif not isinstance(handler.formatter, OneLine):
            handler.setFormatter(OneLine(handler.formatter))


@dataclass
class _Window:
    until: float
    lines: int = 0
    more: int = 0
    say: Callable[[int], None] = lambda _: None


class LogLineLimiter:
    """The limiter of log lines: the first lines of each kind are written, the others are summarized.

    Parameters:
        later: calls a function after so many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        self._clock, self._later = clock, later or _later
        self._windows: dict[tuple[str, ...], _Window] = {}
        self._lock = threading.Lock()

    def admits(self, kind: tuple[str, ...], say: Callable[[int], None]) -> bool:
        """Return whether to write a line of this kind; else count it, and call `say` with the count later."""
        with self._lock:
            window = self._windows.get(kind)
            if window is None or self._clock() >= window.until:
                ended = self._windows.pop(kind, None)
                self._windows[kind] = _Window(self._clock() + WINDOW, lines=1)
            else:
                ended = None
                window.lines += 1
                if window.lines > LINES:
                    window.more += 1
                    window.say = say
                    if window.more == 1:
                        self._later(window.until - self._clock(), self.flush_ended)
                    return False
        if ended is not None:
            _tell(ended)
        return True

    def flush_ended(self) -> None:
        """Write the summaries of windows that are over."""
        self._flush(lambda window: self._clock() >= window.until)

    def flush(self) -> None:
        """Write all summaries now: the process ends."""
        self._flush(lambda window: True)

    def _flush(self, which: Callable[[_Window], bool]) -> None:
        with self._lock:
            ended = {kind: window for kind, window in self._windows.items() if which(window)}
            for kind in ended:
                del self._windows[kind]
        for window in ended.values():
            _tell(window)


def _tell(window: _Window) -> None:
    if window.more:
        window.say(window.more)


def _later(seconds: float, act: Callable[[], None]) -> None:
    # A moment more: a timer may be early by the clock's grain.
    start_timer("repeated log lines", seconds + 0.05, act)


P = ParamSpec("P")


class HarmlessLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose filters, factories and handlers may raise without harm to the caller."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, and ignore errors of logging."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            # The error cannot be logged: the log is what fails.
            return

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave everything as it is."""
        return msg, kwargs


def harmless_logger(name: str) -> HarmlessLogger:
    """Return the harmless logger of a module, for code that a delivery passes through."""
    return HarmlessLogger(logging.getLogger(name))


def harmless(observe: Callable[P, None]) -> Callable[P, None]:
    """Return an observing function whose errors are ignored: reporting is what fails."""
    return make_harmless(observe, lambda _: None)


def make_harmless(observe: Callable[P, None], failed: Callable[[Exception], None]) -> Callable[P, None]:
    """Return an observing function whose errors go to `failed` and no further."""

    @wraps(observe)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            observe(*args, **kwargs)
        except Exception as error:
            failed(error)

    return tried
