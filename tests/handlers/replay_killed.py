"""The handlers of fates.py in a worker that kills itself (kill -9) between two steps of what was sent back going on."""

import os
import signal
import sys
from typing import Any

from bridge.kafka.publisher import Publisher
from tests.handlers.fates import first, second, third

__all__ = ["first", "second", "third"]

_send = Publisher.send


def _kill(step: str) -> None:
    if os.environ["TEST_KILL_AFTER"] == step:
        print("kills itself", file=sys.stderr, flush=True)
        # The whole worker: a child that is lost alone comes back through its main process.
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _sent(self: Publisher, *args: Any) -> Any:
    _kill("the handler has succeeded")
    found = _send(self, *args)
    _kill("Kafka has the next")
    return found


Publisher.send = _sent  # type: ignore[assignment,method-assign]
