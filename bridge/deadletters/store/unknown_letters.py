"""Letters that were sent back and of which nobody can tell whether they ran: `replaying`, with an `unknown` item."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, literal_column, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.among import among
from bridge.deadletters.store.schema import items, letters

#: Not as a parameter: so the index of the letters that are on their way is used.
_REPLAYING: Final = letters.c.status == literal_column(f"'{Status.REPLAYING}'")
#: Whether the plan that sent a letter back has its end as unknown.
IS_UNKNOWN: Final = (
    select(items.c.position)
    .where(
        # The sum keeps a database without statistics from going through all items of the plan for each letter.
        *(items.c.letter_id == letters.c.id, items.c.plan_id + 0 == letters.c.plan_id, items.c.place.is_(None)),
        func.coalesce(items.c.state, literal_column("''")) == ItemState.UNKNOWN,
    )
    .correlate(letters)
    .exists()
)


def page(connection: Connection, plan_id: int | None, ids: Sequence[int] | None, limit: int) -> list[int]:
    """Return the ids of the first such letters, of a plan or of these letters alone where that is asked for."""
    asked = select(letters.c.id).where(_REPLAYING, IS_UNKNOWN)
    if plan_id is not None:
        asked = asked.where(letters.c.plan_id == plan_id)
    if ids is not None:
        asked = asked.where(among(letters.c.id, ids))
    return list(connection.execute(asked.order_by(letters.c.id).limit(limit)).scalars())


def count(connection: Connection) -> tuple[int, int | None]:
    """Return how many such letters there are, and since when (ms since the epoch) the oldest was sent back."""
    asked = select(func.count(), func.min(letters.c.status_at)).where(_REPLAYING, IS_UNKNOWN)
    number, since = connection.execute(asked).one()
    return int(number), since
