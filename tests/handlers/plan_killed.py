"""The handlers of fates.py in a command that kills itself (kill -9), once, between two steps of applying a plan.

TEST_KILL names the step.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.deadletters.db import letter_rows, plan_item_rows
from bridge.deadletters.replay.copy_action import CopyAction
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_action import DiscardAction
from bridge.deadletters.replay.plan_runner import PlanRunner
from bridge.deadletters.replay.plan_service import PlanService
from bridge.deadletters.replay.redrive_action import RedriveAction
from bridge.deadletters.replay.redrive_plan import RedrivePlanner
from bridge.deadletters.replay.replay_action import ReplayAction
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


RedrivePlanner._begun = _killing("making", RedrivePlanner._begun)  # type: ignore[method-assign]
RedrivePlanner._freeze = _killing("frozen", RedrivePlanner._freeze)  # type: ignore[method-assign]
PlanService._begin = _killing("begun", PlanService._begin)  # type: ignore[method-assign]
PlanRunner._claim = _killing("leased", PlanRunner._claim, first=True)  # type: ignore[method-assign]
# In a transaction that is never committed.
plan_item_rows.claim_items = _killing("claiming", plan_item_rows.claim_items)
letter_rows.change_letter_status = _killing("moving", letter_rows.change_letter_status)
PlanRunner._claim = _killing("claimed", PlanRunner._claim)  # type: ignore[method-assign]
ReplayAction.act = _killing("published", ReplayAction.act)  # type: ignore[method-assign]
CopyAction.act = _killing("published", CopyAction.act)  # type: ignore[method-assign]
RedriveAction.act = _killing("published", RedriveAction.act)  # type: ignore[method-assign]
LedgerFates.discard = _killing("told", LedgerFates.discard)  # type: ignore[method-assign]
DiscardAction.settle = _killing("settling", DiscardAction.settle)  # type: ignore[method-assign]
plan_item_rows.note_sent_records = _killing("noting", plan_item_rows.note_sent_records)
PlanRunner._note = _killing("noted", PlanRunner._note)  # type: ignore[method-assign]
PlanRunner._next_wave = _killing("done", PlanRunner._next_wave)  # type: ignore[method-assign]
