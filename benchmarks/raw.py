"""Raw Celery on kombu's own Redis transport, running the same functions with acks_late."""

import os
from typing import Any

from celery import Celery

from benchmarks.work import PermanentError, TransientError, fail_as_asked, mark

app = Celery("raw", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True)


@app.task(name="raw")
def raw(value: Any) -> None:
    """A no-op."""
    mark(int(value))


@app.task(name="raw_storm", autoretry_for=(TransientError,), retry_kwargs={"countdown": 1, "max_retries": 3})
def raw_storm(value: Any) -> None:
    """With Celery's own autoretry; what is permanent just fails, and no dead letter is written."""
    number = int(value)
    try:
        fail_as_asked(number)
    except PermanentError:
        mark(number)
        raise
    mark(number)
