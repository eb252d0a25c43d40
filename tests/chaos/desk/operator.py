"""A person at the desk, who sends back what is open, again and again, in every way that there is.

`python -m tests.chaos.desk.operator SEED`; it prints what it did, and goes on whatever it cannot reach.
"""

import random
import sys
import time
from collections.abc import Callable
from typing import Final

from bridge.cli.answers import loaded
from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import Options, Plan, State, What
from bridge.errors import DeskUnavailable, KafkaUnavailable, LedgerUnavailable, PlanRefused

OPEN: Final = Filter(statuses=(Status.OPEN,))
BY: Final = "operator"
Draw = random.Random


def at_a_rate(desk: Desk, draw: Draw) -> Plan:
    plan = desk.plans.make(What.REPLAY, OPEN, Options(rate=draw.choice((5, 20, 100))), BY)
    return desk.plans.apply(plan.id, BY)


def all_at_once(desk: Desk, draw: Draw) -> Plan:
    return desk.plans.apply(desk.plans.make(What.REPLAY, OPEN, Options(), BY).id, BY)


def in_waves(desk: Desk, draw: Draw) -> Plan:
    return desk.plans.apply(desk.plans.make(What.REPLAY, OPEN, Options(canary=True), BY).id, BY)


def in_the_background(desk: Desk, draw: Draw) -> Plan:
    plan = desk.plans.make(What.REPLAY, OPEN, Options(rate=draw.choice((5, 20))), BY)
    return desk.plans.approve(plan.id, BY)


def never(desk: Desk, draw: Draw) -> Plan:
    return desk.plans.make(What.REPLAY, OPEN, Options(), BY)


def stop_one(desk: Desk, draw: Draw) -> Plan:
    return desk.plans.stop(_one(desk, draw, State.APPLYING).id, BY, "on second thoughts")


def go_on_with_one(desk: Desk, draw: Draw) -> Plan:
    return desk.plans.apply(_one(desk, draw, State.STOPPED, State.PLANNED).id, BY)


def _one(desk: Desk, draw: Draw, *states: State) -> Plan:
    found = [plan for plan in desk.plans.latest() if plan.state in states]
    if not found:
        raise PlanRefused("there is none")
    return draw.choice(found)


#: What it does, and how often.
WAYS: Final[dict[Callable[[Desk, Draw], Plan], int]] = {
    at_a_rate: 5,
    all_at_once: 3,
    in_waves: 2,
    in_the_background: 3,
    never: 1,
    stop_one: 2,
    go_on_with_one: 3,
}


def work(desk: Desk, draw: Draw) -> None:
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
    draw, found = Draw(seed), loaded("tasks")
    print("the operator is ready.", flush=True)
    while True:
        try:
            with Desk.opened(*found) as desk:
                work(desk, draw)
        except (DeskUnavailable, KafkaUnavailable, LedgerUnavailable) as error:
            print(f"{time.time():.2f} {error}", flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1])
