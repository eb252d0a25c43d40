"""What lies between the end of a task's body and the acknowledgement of its message.

A mark that goes along with the acknowledgement waits for all of it. What can take its time there, or makes Celery
acknowledge without the child's last word, is for a mark that the child makes itself, before.
"""

from typing import Any, Final

from celery import Task, signals
from celery.app.task import get_actual_ignore_result  # type: ignore[attr-defined]
from celery.backends.base import DisabledBackend

#: Whose receivers of signals take no time: Celery's own (Django's connections are closed), and this project's.
_QUICK: Final = ("celery.", "tasks.", "lossless.", "bridge.")


def keeps_success(task: Any) -> bool:
    """Whether a success of the task that runs now is known to others than its ledger.

    Celery acknowledges what its result backend calls a success, also where the process that ran it died with its last
    word (celery/worker/request.py `_success_was_stored`), and does not run it again where it deduplicates.
    """
    if task.app.conf.worker_deduplicate_successful_tasks:
        return True
    ignored = get_actual_ignore_result(task, task.request)
    return not ignored and not isinstance(task.backend, DisabledBackend)


def is_followed(task: Any) -> bool:
    """Whether code of others runs after the task's body: its hooks, receivers of signals."""
    if _has_hooks(task.__class__):
        return True
    sent: tuple[Any, ...] = (signals.task_success, signals.task_postrun)
    return any(
        not str(getattr(receiver, "__module__", "")).startswith(_QUICK)
        for signal in sent
        if signal.receivers
        for receiver in signal._live_receivers(task)
    )


def _has_hooks(kind: type[Any]) -> bool:
    return any(getattr(kind, hook) is not getattr(Task, hook) for hook in ("on_success", "after_return"))
