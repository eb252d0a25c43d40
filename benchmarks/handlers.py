"""The same no-op for every contestant: it marks its message as handled."""

import mmap
import os
from typing import Any

from tasks import app, handler

_map: mmap.mmap | None = None


def mark(number: int) -> None:
    """Mark a message in the shared file."""
    global _map
    if _map is None:
        with open(os.environ["MARKS"], "r+b") as file:
            _map = mmap.mmap(file.fileno(), 0)
    _map[number] = 1


@handler("one", codec=int)
def one(number: int) -> None:
    """One by one."""
    mark(number)


@app.task(name="raw", acks_late=True, ignore_result=True)
def raw(value: Any) -> None:
    """Raw Celery."""
    mark(int(value))
