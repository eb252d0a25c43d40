"""What is asked of who decides on a plan: a role and a number to discard; that it was applied, to go on (pure)."""

from collections.abc import Mapping
from typing import Final

from bridge.deadletters.plan.plan import Plan, What
from bridge.deadletters.questions.progress import Progress
from bridge.errors import PlanRefused
from bridge.web.roles import Role, Who

#: Letters that an operator may discard by one plan; more is an admin's.
MOST_DISCARDED: Final = 1_000


def check(plan: Plan, who: Who, form: Mapping[str, str]) -> None:
    """What is asked of who discards: the role for so many, and their number, typed.

    Raises:
        PlanRefused: something is missing.
    """
    count = plan.counts.letters
    if plan.what is not What.DISCARD:
        return
    if count > MOST_DISCARDED and who.role < Role.ADMIN:
        raise PlanRefused(
            f"To discard {count:,} letters takes an admin: you are {who.role}, who may discard "
            f"{MOST_DISCARDED:,} by one plan. Nothing was discarded."
        )
    if not form.get("why", "").strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log. Nothing was discarded.")
    if form.get("count", "").strip().replace(",", "") != str(count):
        raise PlanRefused(f"Type {count} to discard these letters. Nothing was discarded.")


def check_again(found: Progress, who: Who) -> None:
    """What is asked of who goes on with a plan that was stopped: that somebody had decided on it, and the role."""
    plan = found.plan
    if not was_applied(found):
        raise PlanRefused(
            f"Plan {plan.id} was thrown away before anybody had decided how it is done: choose its letters anew."
        )
    if too_many(plan, who):
        raise PlanRefused(f"To discard {plan.counts.letters:,} letters takes an admin: you are {who.role}.")


def was_applied(found: Progress) -> bool:
    """Whether somebody has decided on it ever, by the audit log."""
    return any(act.what == "apply" for act in found.trail)


def too_many(plan: Plan, who: Who) -> bool:
    """Whether it discards more letters than who asks may."""
    return plan.what is What.DISCARD and plan.counts.letters > MOST_DISCARDED and who.role < Role.ADMIN
