"""The approval of a plan by a person: valid once, and only if the plan is as the person saw it."""

from typing import Final, NamedTuple

from bridge.deadletters.db import audit_table, plan_table
from bridge.deadletters.db.database import Connection
from bridge.deadletters.model.bulk_plan import BulkPlan, compute_plan_version
from bridge.errors import PlanChanged
from bridge.jobs.group_facts import format_letter_count as letters_said
from bridge.jobs.group_facts import format_utc

#: Ms for which a discard can be undone before it begins.
DISCARD_AFTER: Final = 10_000


class PlanApproval(NamedTuple):
    """The approval of a plan, to be applied or resumed.

    Attributes:
        key: the version of the plan that the person saw (model/bulk_plan.py).
        left: the number of its letters that no other plan had taken then.
        rate, canary, why: of a plan that was not begun (`PlanOptions`, `BulkPlan`).
    """

    key: str
    left: int = 0
    rate: float | None = None
    canary: bool = False
    why: str = ""


def require_unchanged_plan(connection: Connection, plan: BulkPlan, by: str, seen: str) -> None:
    """Require that nothing was done with a plan since the person saw it.

    Raises:
        PlanChanged: it has changed; the message says who did what, and when.
    """
    acts = audit_table.read_history(connection, plan_id=plan.id, last=1)
    if seen == compute_plan_version(plan.state, acts[-1].id if acts else 0):
        return
    if not acts:
        raise PlanChanged(f"Plan {plan.id} is {plan.state} by now.")
    last = acts[-1]
    whose = "you" if last.by == by else last.by
    raise PlanChanged(
        f"Plan {plan.id} is {plan.state} by now: {last.said}, by {whose} at {format_utc(last.at / 1000)}."
    )


def require_untaken_letters(connection: Connection, plan: BulkPlan, left: int) -> None:
    """Require that no other plan has taken letters of a plan since the person saw it.

    Raises:
        PlanChanged: one has; the message says which plan of whom, how many, and how many are left.
    """
    gone = plan_table.find_changed_letters(connection, plan.id, plan.at)
    now = plan.counts.letters - gone.letters
    if now == left:
        return
    others = [other for id_ in gone.plans if (other := plan_table.read_plan(connection, id_))]
    whose = ", ".join(f"plan {other.id} of {other.by}" for other in others) or "Somebody"
    verb = "have" if len(others) > 1 else "has"
    count, them = gone.letters, letters_said(plan.counts.letters)
    raise PlanChanged(f"{whose[0].upper()}{whose[1:]} {verb} taken {count:,} of these {them}. {now:,} are left.")
