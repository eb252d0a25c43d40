"""What lies between the end of a task's body and the acknowledgement of its message.

A mark that goes along with the acknowledgement waits for all of it. What can take its time there, or makes Celery
acknowledge without the child's last word, is for a mark that the child makes itself, before.
"""

from typing import Any

from celery.app.task import get_actual_ignore_result  # type: ignore[attr-defined]
from celery.backends.base import DisabledBackend


def keeps_success(task: Any) -> bool:
    """Whether a success of the task that runs now is known to others than its ledger.

    Celery acknowledges what its result backend calls a success, also where the process that ran it died with its last
    word (celery/worker/request.py `_success_was_stored`), and does not run it again where it deduplicates.
    """
    if task.app.conf.worker_deduplicate_successful_tasks:
        return True
    ignored = get_actual_ignore_result(task, task.request)
    return not ignored and not isinstance(task.backend, DisabledBackend)
