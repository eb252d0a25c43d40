"""The second person: above a number of deliveries (DEADLETTERS_APPROVAL_ABOVE) a plan begins only when somebody other
than its planner has approved it (pure).

This guards against mistakes, not against intent: many small plans need nobody.
"""

import re
from typing import Final

from bridge.deadletters.model.bulk_plan import BulkPlan, PlanState

#: The end of a person's name in a name: `ann@laptop`, `ann@example.com`, `ann (sso.example.com 1f0c7a3e)`.
_NAME_END: Final = re.compile(r"@| \(")


def needs_second_person(plan: BulkPlan, above: int | None) -> bool:
    """Return whether a plan may not begin before a second person approves it.

    Parameters:
        above: the most deliveries that one person may plan and apply; `None`: any number.
    """
    if plan.approved_by or plan.began_at is not None:
        return False
    return plan.state is PlanState.AWAITING or (above is not None and sum(plan.outcomes.values()) > above)


def is_planner(plan: BulkPlan, person: str) -> bool:
    """Return whether a person made a plan, by the names of their accounts."""
    return _normalise_name(person) == _normalise_name(plan.planner or plan.by)


def _normalise_name(person: str) -> str:
    """Return the part of a name that a person's accounts share: on hosts, in the console, at an issuer."""
    return _NAME_END.split(person.strip().casefold(), maxsplit=1)[0]
