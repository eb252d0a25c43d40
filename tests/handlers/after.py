"""A handler that ends well, and whose process or worker is killed right then: before anybody can know."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery.signals import task_postrun

from tasks import Message, handler
from tests.handlers.notes import note, topic

#: What besides is to be done with a handler's end: "results" are stored, a "receiver" of a signal hears of it.
ASKED = os.environ.get("TEST_AFTER", "")
OPTIONS: dict[str, Any] = {"ignore_result": False} if ASKED == "results" else {}
_to_kill: list[int] = []


class Last(int):
    """What the handler returns: Celery makes a text of it for its log when all else is done."""

    def __repr__(self) -> str:
        kill()
        return str(int(self))


@handler(topic("orders"), batch=1, **OPTIONS)
def after(order: Any, message: Message) -> Last:
    """`{"kill": "child"}` or `"worker"`: once; `{"seconds": s}` takes so long."""
    said = order if isinstance(order, dict) else {}
    time.sleep(said.get("seconds", 0))
    once = Path(f"{os.environ['TEST_RUNS']}.{message.coordinates}")
    if "kill" in said and not once.exists():
        once.touch()
        _to_kill.extend([os.getpid()] if said["kill"] == "child" else [os.getppid(), os.getpid()])
    note("after", message, order)
    return Last(7)


def kill(**_: Any) -> None:
    """Its handler has ended, its end is not told."""
    for pid in _to_kill:
        os.kill(pid, signal.SIGKILL)


if ASKED == "receiver":
    task_postrun.connect(kill)
