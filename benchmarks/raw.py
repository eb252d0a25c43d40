"""Raw Celery on kombu's own Redis transport, running the same functions with acks_late; all else at its default."""

import os
from typing import Any

from celery import Celery

from benchmarks import work

app = Celery("raw", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True)


@app.task(name="noop")
def noop(value: Any) -> None:
    """A no-op."""
    work.mark(int(value))


@app.task(name="quiet")
def quiet(value: Any) -> None:
    """When it ran is of interest."""
    work.mark_at(int(value))


@app.task(name="slow")
def slow(value: Any) -> None:
    """10 ms."""
    work.nap(int(value))


@app.task(name="insert")
def insert(value: Any) -> None:
    """A row in PostgreSQL."""
    work.insert(int(value))


@app.task(name="storm", autoretry_for=(work.TransientError,), retry_kwargs={"countdown": 1, "max_retries": 3})
def storm(value: Any) -> None:
    """With Celery's own autoretry; what is permanent just fails, and no dead letter is written."""
    try:
        work.storm(int(value))
    except work.PermanentError:
        work.mark(int(value))
        raise
