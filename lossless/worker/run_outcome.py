"""The outcome of a task's run, as the worker's main process sees it (pure)."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import OperationalError

from lossless.backoff import Backoff

LOSSES = (WorkerLostError, TimeLimitExceeded, MemoryError)
#: Seconds before a message that was put back runs again.
REQUEUE_BACKOFF: Final = Backoff(first=1, most=60)


class ComeBack(Reject):
    """Raise it in a task that cannot finish now: its message is redelivered later, with these headers.

    They go over the headers that it has: so what was done is not forgotten. The worker's main process keeps the
    message until the broker has taken its successor; the pauses grow up to a minute.

    Parameters:
        why: for the log.
        headers: JSON values.
        gate: of lossless.transport: it waits there, with others that were taken before all that were not. Nothing is
            wrong with it then.
        after: seconds after which it comes back where the broker has no gates.
        first: it is the first to go through the gate.
    """

    def __init__(
        self, why: str, headers: Mapping[str, Any], gate: str = "", after: float = 1.0, first: bool = False
    ) -> None:
        super().__init__(why, requeue=True)
        self.headers = dict(headers)
        self.gate, self.after, self.first = gate, after, first

    def __reduce__(self) -> tuple[type["ComeBack"], tuple[str, dict[str, Any], str, float, bool]]:
        return (type(self), (str(vars(self)["reason"]), self.headers, self.gate, self.after, self.first))


class RunOutcome(Enum):
    """The consequence of a run's end."""

    SETTLED = auto()  # the child saw to it: done, retried, ignored, or Task.on_failure went through
    LOST = auto()  # the process went, or was not fit to say how it ended
    REQUEUED = auto()  # it is to run again, unchanged
    REJECTED = auto()  # the task refused the message
    FAILED = auto()  # it raised, and nobody took note


def decide_outcome(error: BaseException, *, returned: bool, internal: bool) -> RunOutcome:
    """Return the outcome that an exception reported to `Request.on_failure` stands for.

    `returned`: Celery's `return_ok`, the child came back from its trace. `internal`: Celery's
    `ExceptionInfo.internal`: what failed was the trace itself (a raising `Task.on_failure`, a result backend
    that is down), so `Task.on_failure` cannot be relied on, although the child did return
    (celery/app/trace.py, `report_internal_error`). Reject and Ignore are marked internal as well.
    """
    if isinstance(error, (Retry, Ignore)):
        return RunOutcome.SETTLED
    if isinstance(error, Reject):
        return RunOutcome.REQUEUED if _requeues(error) else RunOutcome.REJECTED
    if returned and not internal:
        return RunOutcome.SETTLED
    if isinstance(error, LOSSES) or not isinstance(error, Exception):
        return RunOutcome.LOST
    return RunOutcome.FAILED


def unwrap_exception(exception: BaseException) -> BaseException:
    """Return the exception inside the wrapper in which it travels between processes."""
    inner = getattr(exception, "exc", None) if type(exception).__name__ == "ExceptionWithTraceback" else None
    return inner if isinstance(inner, BaseException) else exception


def read_reject_reason(reject: Reject) -> object:
    """Return why a task rejected its message: the argument of Reject, often a text or an exception."""
    return getattr(reject, "reason", None)


def _requeues(reject: Reject) -> bool:
    # Task.retry raises Reject(exc, requeue=False) when its message cannot be published (celery/app/task.py).
    # A broker that is unavailable is no reason to give a delivery up.
    reason = read_reject_reason(reject)
    away = isinstance(reason, (OperationalError, OSError)) or type(reason).__module__ == "redis.exceptions"
    return away or bool(getattr(reject, "requeue", False))
