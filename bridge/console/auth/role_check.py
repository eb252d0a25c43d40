"""The decision whether a role suffices: for a page, for an operation of the API, and for a plan that discards letters
(pure).

Which role each page needs is in pages/page_routes.py, and each operation's at its function in api/. Forged forms are
refused in http_security.py.
"""

from collections.abc import Mapping
from typing import Final

from bridge.console.auth.principal import Principal
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanKind
from bridge.deadletters.replay.plan_progress import PlanProgress
from bridge.errors import PlanRefused


def find_role_refusal(who: Principal, needed: Role) -> str | None:
    """Return why a principal may not do what needs a role; `None` if it may."""
    if who.role >= needed:
        return None
    return f"This needs the role {needed}; {who.name} has the role {who.role}."


#: The most letters that an operator may discard by one plan; more takes an admin.
MAX_OPERATOR_DISCARDS: Final = 1_000


def check_discard(plan: BulkPlan, who: Principal, form: Mapping[str, str]) -> None:
    """Check that a principal may discard so many letters, and has typed their number.

    Raises:
        PlanRefused: the role does not suffice, or the decision or the number is missing.
    """
    count = plan.counts.letters
    if plan.what is not PlanKind.DISCARD:
        return
    if count > MAX_OPERATOR_DISCARDS and who.role < Role.ADMIN:
        raise PlanRefused(
            f"To discard {count:,} letters takes an admin: you are {who.role}, who may discard "
            f"{MAX_OPERATOR_DISCARDS:,} by one plan. Nothing was discarded."
        )
    if not form.get("why", "").strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log. Nothing was discarded.")
    if form.get("count", "").strip().replace(",", "") != str(count):
        raise PlanRefused(f"Type {count} to discard these letters. Nothing was discarded.")


def check_resumption(found: PlanProgress, who: Principal) -> None:
    """Check that a principal may resume a stopped plan that was applied before."""
    plan = found.plan
    if not was_applied(found):
        raise PlanRefused(f"Plan {plan.id} was thrown away before it was approved: make a new plan.")
    if exceeds_discard_limit(plan, who):
        raise PlanRefused(f"To discard {plan.counts.letters:,} letters takes an admin: you are {who.role}.")


def was_applied(found: PlanProgress) -> bool:
    """Return whether the audit log has a decision to apply the plan."""
    return any(act.what == "apply" for act in found.trail)


def exceeds_discard_limit(plan: BulkPlan, who: Principal) -> bool:
    """Return whether a plan discards more letters than the principal may."""
    return plan.what is PlanKind.DISCARD and plan.counts.letters > MAX_OPERATOR_DISCARDS and who.role < Role.ADMIN
