"""A handler that ends well, and whose process or worker is killed right then: before anybody can know."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery.signals import task_postrun

from tasks import Message, handler
from tests.handlers.notes import note, topic

_to_kill: list[int] = []


@handler(topic("orders"), batch=1)
def after(order: Any, message: Message) -> None:
    """`{"kill": "child"}` or `"worker"`: once; `{"seconds": s}` takes so long."""
    said = order if isinstance(order, dict) else {}
    time.sleep(said.get("seconds", 0))
    once = Path(f"{os.environ['TEST_RUNS']}.{message.coordinates}")
    if "kill" in said and not once.exists():
        once.touch()
        _to_kill.extend([os.getpid()] if said["kill"] == "child" else [os.getppid(), os.getpid()])
    note("after", message, order)


@task_postrun.connect
def kill(**_: Any) -> None:
    """Its handler has ended, its end is not told."""
    for pid in _to_kill:
        os.kill(pid, signal.SIGKILL)
