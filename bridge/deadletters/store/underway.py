"""Deliveries that other plans have under way and that are no letters' own: two records of one could run at once.

So one plan claims at a time.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import Connection, func, literal_column, select

from bridge.deadletters.plan.plan import UNDER_WAY
from bridge.deadletters.store.schema import items
from bridge.deadletters.store.statuses import in_parts

#: Not as a parameter: so the index of what is under way is used.
_UNDER_WAY: Final = items.c.state.in_([literal_column(f"'{state}'") for state in UNDER_WAY])

#: What PostgreSQL knows the claims of plans by: any number that nobody else's is.
_CLAIMS: Final = 7_303_014_711


class Elsewhere(NamedTuple):
    """A delivery that another plan has under way.

    Attributes:
        number: under which it was sent; `None`: it is about to be.
    """

    plan_id: int
    number: int | None

    def before(self, died: int) -> bool:
        """Whether it had been sent before the delivery died under this number: then it is under way no more (pure)."""
        return self.number is not None and self.number <= died


def alone(connection: Connection) -> None:
    """Until the transaction ends no other plan claims: two would take the same delivery, or the same lane."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CLAIMS)))


def elsewhere(connection: Connection, plan_id: int, places: Iterable[str]) -> dict[str, Elsewhere]:
    """By place, what other plans have under way; of the plan of this number, nothing.

    Parameters:
        places: deliveries (`orders-3-1234:orders.handlers.charge`).
    """
    found: dict[str, Elsewhere] = {}
    for some in in_parts(sorted(set(places))):
        asked = select(items.c.place, items.c.plan_id, items.c.number)
        asked = asked.where(items.c.place.in_(some), _UNDER_WAY, items.c.plan_id != plan_id)
        found |= {row.place: Elsewhere(row.plan_id, row.number) for row in connection.execute(asked)}
    return found
