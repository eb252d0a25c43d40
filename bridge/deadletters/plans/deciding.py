"""A plan decided on by somebody who has looked at it: if it is still as it was then, and once."""

from typing import Final, NamedTuple

from bridge.deadletters.plan.key import key
from bridge.deadletters.plan.plan import Plan
from bridge.deadletters.store import changes, plans, trail
from bridge.deadletters.store.database import Connection
from bridge.errors import PlanChanged
from bridge.upkeep.facts import clock
from bridge.upkeep.facts import letters as letters_said

#: Ms for which a discard waits, for who thinks better of it.
DISCARD_AFTER: Final = 10_000


class Decision(NamedTuple):
    """That a plan is to be done, or gone on with, and how.

    Attributes:
        key: of the plan as it was looked at (bridge.deadletters.plan.key).
        left: how many of its letters nobody else had taken then.
        rate, canary, why: of a plan that was not begun (Options, Plan).
    """

    key: str
    left: int = 0
    rate: float | None = None
    canary: bool = False
    why: str = ""


def changed(connection: Connection, plan: Plan, by: str, seen: str) -> None:
    """Nothing was done with a plan since it was seen.

    Raises:
        PlanChanged: something was: who did what, and when.
    """
    acts = trail.of(connection, plan_id=plan.id, last=1)
    if seen == key(plan.state, acts[-1].id if acts else 0):
        return
    if not acts:
        raise PlanChanged(f"Plan {plan.id} is {plan.state} by now.")
    last = acts[-1]
    whose = "you" if last.by == by else last.by
    raise PlanChanged(f"Plan {plan.id} is {plan.state} by now: {last.said}, by {whose} at {clock(last.at / 1000)}.")


def taken(connection: Connection, plan: Plan, left: int) -> None:
    """Nobody has taken letters of a plan since it was seen.

    Raises:
        PlanChanged: somebody has: which plan of whom, how many, and how many are left.
    """
    gone = changes.gone(connection, plan.id, plan.at)
    now = plan.counts.letters - gone.letters
    if now == left:
        return
    others = [other for id_ in gone.plans if (other := plans.one(connection, id_))]
    whose = ", ".join(f"plan {other.id} of {other.by}" for other in others) or "Somebody"
    verb = "have" if len(others) > 1 else "has"
    count, them = gone.letters, letters_said(plan.counts.letters)
    raise PlanChanged(f"{whose[0].upper()}{whose[1:]} {verb} taken {count:,} of these {them}. {now:,} are left.")
