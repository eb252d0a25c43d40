"""The handlers of fates.py in a process that kills itself (kill -9), once, between two steps of a halt.

TEST_KILL names the step, and whether its child alone dies or the whole worker.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.ledger.control import Mirror
from bridge.topics import control
from lossless.transport.gates import Gates
from tests.handlers.fates import act

__all__ = ["act"]

STEP, _, WHO = os.environ["TEST_KILL"].partition(" ")


def _killing(step: str, do: Callable[..., Any], *, first: bool = False) -> Callable[..., Any]:
    def done(*args: Any, **named: Any) -> Any:
        if first:
            _kill(step)
        found = do(*args, **named)
        _kill(step)
        return found

    return done


def _kill(step: str) -> None:
    mark = Path(f"{os.environ['TEST_RUNS']}.killed")
    if step != STEP or mark.exists():
        return
    mark.touch()
    print(f"kills itself: {step}", file=sys.stderr, flush=True)
    if WHO == "worker":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


control.publish = _killing("asked", control.publish, first=True)
control.publish = _killing("acknowledged", control.publish)
Mirror.note = _killing("mirrored", Mirror.note)  # type: ignore[method-assign]
Gates.shut = _killing("shut", Gates.shut)  # type: ignore[method-assign]
