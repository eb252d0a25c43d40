"""The handlers of fates.py in a command that kills itself (kill -9), once, between two steps of applying a plan.

TEST_KILL names the step.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.deadletters.actions.discarding import Discarding
from bridge.deadletters.actions.sending import Sending
from bridge.deadletters.copying.copying import Copying
from bridge.deadletters.fates import Fates
from bridge.deadletters.plans.applying import Applying
from bridge.deadletters.plans.plans import Plans
from bridge.deadletters.redrive.redrive import Redrive
from bridge.deadletters.redrive.redriving import Redriving
from bridge.deadletters.store import items, spots, statuses
from tests.handlers.fates import act

__all__ = ["act"]


def _killing(step: str, do: Callable[..., Any], *, first: bool = False) -> Callable[..., Any]:
    def done(*args: Any, **named: Any) -> Any:
        if first:
            _kill(step)
        found = do(*args, **named)
        _kill(step)
        return found

    return done


def _kill(step: str) -> None:
    mark = Path(f"{os.environ['TEST_RUNS']}.killed {step}")
    if step != os.environ["TEST_KILL"] or mark.exists():
        return
    mark.touch()
    print(f"kills itself: {step}", file=sys.stderr, flush=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


Redrive._begun = _killing("making", Redrive._begun)  # type: ignore[method-assign]
Redrive._freeze = _killing("frozen", Redrive._freeze)  # type: ignore[method-assign]
Plans._begin = _killing("begun", Plans._begin)  # type: ignore[method-assign]
Applying._claim = _killing("leased", Applying._claim, first=True)  # type: ignore[method-assign]
# In a transaction that is never committed.
items.claim = _killing("claiming", items.claim)
statuses.move = _killing("moving", statuses.move)
Applying._claim = _killing("claimed", Applying._claim)  # type: ignore[method-assign]
Sending.act = _killing("published", Sending.act)  # type: ignore[method-assign]
Copying.act = _killing("published", Copying.act)  # type: ignore[method-assign]
Redriving.act = _killing("published", Redriving.act)  # type: ignore[method-assign]
Fates.discard = _killing("told", Fates.discard)  # type: ignore[method-assign]
Discarding.settle = _killing("settling", Discarding.settle)  # type: ignore[method-assign]
spots.sent = _killing("noting", spots.sent)
Applying._note = _killing("noted", Applying._note)  # type: ignore[method-assign]
Applying._next_wave = _killing("done", Applying._next_wave)  # type: ignore[method-assign]
