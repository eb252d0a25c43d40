"""The handlers of fates.py in a process that kills itself (kill -9), once, between two steps of a halt.

TEST_KILL names the step, and whether its child alone dies or the whole worker.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.kafka import control_topic
from bridge.ledger.decision_store import DecisionMirror
from lossless.transport.message_gates import MessageGates
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


control_topic.publish_decision = _killing("asked", control_topic.publish_decision, first=True)
control_topic.publish_decision = _killing("acknowledged", control_topic.publish_decision)
DecisionMirror.note = _killing("mirrored", DecisionMirror.note)  # type: ignore[method-assign]
MessageGates.shut = _killing("shut", MessageGates.shut)  # type: ignore[method-assign]
