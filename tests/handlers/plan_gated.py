"""The handlers of mended.py, for a command that applies a plan once the file of TEST_GATE is there.

So several operators are at the same letters at once, however long each process took to start.
"""

import os
import time
from pathlib import Path
from typing import Any

from bridge.deadletters.replay.plan_service import PlanService
from tests.handlers.mended import charge, notify

__all__ = ["charge", "notify"]

_begin = PlanService._begin


def _waits(*args: Any) -> bool:
    print("waits for the gate", flush=True)
    while not Path(os.environ["TEST_GATE"]).exists():
        time.sleep(0.002)
    return _begin(*args)


PlanService._begin = _waits  # type: ignore[assignment,method-assign]
