"""What others see of an end that Celery tells nobody: events (Flower), signals, the result backend, the log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import signals
from celery.utils.log import get_logger
from kombu.utils.encoding import safe_repr

logger = get_logger(__name__)


def tell_failed(request: Any, error: Any, exc_info: Any) -> None:
    """It has failed for good."""
    logger.error("Task %s[%s] ended: %r", request.name, request.id, error)
    with _logged("result backend"):
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


def tell_comeback(request: Any, error: Any, exc_info: Any, why: str, level: int = logging.WARNING) -> None:
    """It comes back; `why` says in the log what for."""
    logger.log(level, "Task %s[%s] %s", request.name, request.id, why)
    if request.store_errors:
        with _logged("result backend"):
            request.task.backend.mark_as_retry(request.id, error, exc_info.traceback, request=request._context)
    request.send_event("task-retried", exception=safe_repr(error), traceback=exc_info.traceback)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """A block whose error is logged and goes no further: the delivery is taken care of already."""
    try:
        yield
    except Exception as error:
        logger.error("%s: %r", what, error)
