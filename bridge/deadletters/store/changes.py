"""What of a plan's letters others have changed since it was made: found by when letters changed, not by the plan."""

from typing import NamedTuple

from sqlalchemy import Connection, and_, func, literal_column, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.schema import items, letters


class Gone(NamedTuple):
    """Letters that are not open any more.

    Attributes:
        plans: that have them now, or had them last.
    """

    letters: int
    plans: tuple[int, ...]


_NOT_TAKEN = (ItemState.WAITING, ItemState.SKIPPED, ItemState.REFUSED)


def gone(connection: Connection, plan_id: int, since: int) -> Gone:
    """The letters of a plan that have changed since then (ms) and are not open.

    Of a plan that was not begun: later all are its own doing.
    """
    not_open = [status for status in Status if status is not Status.OPEN]
    # Not by the plan's own index: SQLite would look at every letter of the plan, however few have changed.
    plan = func.coalesce(items.c.plan_id, literal_column("0"))
    mine = and_(items.c.letter_id == letters.c.id, plan == plan_id)
    # Of ended letters that are archived, nothing is taken away: those changed before.
    late = (letters.c.status.in_(not_open), letters.c.status_at >= since)
    found = select(letters.c.id).join(items, mine).where(*late).subquery()
    count = int(connection.execute(select(func.count()).select_from(found)).scalar_one())
    if not count:
        return Gone(0, ())
    other = items.alias()
    has = and_(other.c.letter_id == found.c.id, other.c.plan_id != plan_id, other.c.state.not_in(_NOT_TAKEN))
    ids = connection.execute(select(other.c.plan_id).join(found, has).distinct().order_by(other.c.plan_id)).scalars()
    return Gone(count, tuple(ids))
