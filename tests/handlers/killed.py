"""The handlers of parking.py in a process that kills itself (kill -9) between two steps of parking, or of a burial."""

import os
import signal
import sys
from typing import Any

from bridge.kafka.publisher import Publisher
from bridge.ledger import Fate
from tasks.execution.batch_fates import BatchFates
from tests.handlers.parking import charge

__all__ = ["charge"]

_park, _mark, _dead_letter = Publisher.park, BatchFates.mark_all, Publisher.dead_letter


def _kill() -> None:
    print("kills itself", file=sys.stderr, flush=True)
    # The whole worker: a child that is lost alone comes back through its main process.
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _parked(self: Publisher, *args: Any) -> Any:
    found = _park(self, *args)
    if os.environ["TEST_KILL_AFTER"] == "acknowledged":
        _kill()
    return found


def _buried(self: Publisher, *args: Any) -> None:
    _dead_letter(self, *args)
    if os.environ["TEST_KILL_AFTER"] == "letter":
        _kill()


def _marked(self: BatchFates, offsets: Any, fate: Fate) -> None:
    _mark(self, offsets, fate)
    if fate is Fate.PARKED:
        _kill()


Publisher.park = _parked  # type: ignore[method-assign, assignment]
Publisher.dead_letter = _buried  # type: ignore[method-assign, assignment]
BatchFates.mark_all = _marked  # type: ignore[method-assign]
