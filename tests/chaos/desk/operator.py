"""A person at the desk, who sends back what is open, again and again, in every way that there is.

`python -m tests.chaos.desk.operator SEED`; it prints what it did, and goes on whatever it cannot reach.
"""

import random
import sys
import time
from collections.abc import Callable
from typing import Final

from bridge.cli.command_io import load_app
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import DeskUnavailable, KafkaUnavailable, LedgerUnavailable, PlanRefused

OPEN: Final = LetterFilter(statuses=(LetterStatus.OPEN,))
BY: Final = "operator"
Draw = random.Random


def at_a_rate(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    plan = desk.plans.make(PlanKind.REPLAY, OPEN, PlanOptions(rate=draw.choice((5, 20, 100))), BY)
    return desk.plans.apply(plan.id, BY)


def all_at_once(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    return desk.plans.apply(desk.plans.make(PlanKind.REPLAY, OPEN, PlanOptions(), BY).id, BY)


def in_waves(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    return desk.plans.apply(desk.plans.make(PlanKind.REPLAY, OPEN, PlanOptions(canary=True), BY).id, BY)


def in_the_background(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    plan = desk.plans.make(PlanKind.REPLAY, OPEN, PlanOptions(rate=draw.choice((5, 20))), BY)
    return desk.plans.approve(plan.id, BY)


def never(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    return desk.plans.make(PlanKind.REPLAY, OPEN, PlanOptions(), BY)


def stop_one(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    return desk.plans.stop(_one(desk, draw, PlanState.APPLYING).id, BY, "on second thoughts")


def go_on_with_one(desk: DeadLetterService, draw: Draw) -> BulkPlan:
    return desk.plans.apply(_one(desk, draw, PlanState.STOPPED, PlanState.PLANNED).id, BY)


def _one(desk: DeadLetterService, draw: Draw, *states: PlanState) -> BulkPlan:
    found = [plan for plan in desk.plans.latest() if plan.state in states]
    if not found:
        raise PlanRefused("there is none")
    return draw.choice(found)


#: What it does, and how often.
WAYS: Final[dict[Callable[[DeadLetterService, Draw], BulkPlan], int]] = {
    at_a_rate: 5,
    all_at_once: 3,
    in_waves: 2,
    in_the_background: 3,
    never: 1,
    stop_one: 2,
    go_on_with_one: 3,
}


def work(desk: DeadLetterService, draw: Draw) -> None:
    """Do one thing after another."""
    while True:
        way = draw.choices(list(WAYS), list(WAYS.values()))[0]
        print(f"{time.time():.2f} {way.__name__}", flush=True)
        try:
            plan = way(desk, draw)
            said = f"plan {plan.id} is {plan.state}, {dict(plan.outcomes)}"
        except PlanRefused as error:
            said = str(error)
        print(f"{time.time():.2f} {said}", flush=True)
        time.sleep(draw.uniform(0.2, 1.5))


def main(seed: str) -> None:
    """Work at the desk until somebody ends it."""
    draw, found = Draw(seed), load_app("tasks")
    print("the operator is ready.", flush=True)
    while True:
        try:
            with DeadLetterService.opened(*found) as desk:
                work(desk, draw)
        except (DeskUnavailable, KafkaUnavailable, LedgerUnavailable) as error:
            print(f"{time.time():.2f} {error}", flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1])
