"""Letters of which nobody need do anything any more leave the database: which, and how."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, exists, select

from bridge.deadletters.letters.letter import ENDED
from bridge.deadletters.plan.plan import UNDER_WAY
from bridge.deadletters.store import tallies
from bridge.deadletters.store.schema import items, letters

#: Nothing of a plan that is on its way needs them: another handler's delivery has its record from the letter.
_NOT_NEEDED: Final = ~exists().where(items.c.letter_id == letters.c.id, items.c.state.in_(UNDER_WAY))


def ended_before(connection: Connection, moment: int, most: int) -> list[int]:
    """The ids of letters that were resolved, discarded or archived before then (ms since the epoch)."""
    found: list[int] = []
    for status in ENDED:
        statement = (
            select(letters.c.id)
            .where(letters.c.status == status, letters.c.status_at < moment, _NOT_NEEDED)
            .order_by(letters.c.status_at)
            .limit(most - len(found))
        )
        found += connection.execute(statement).scalars()
    return sorted(found)


def remove(connection: Connection, ids: Sequence[int], moment: int) -> int:
    """Delete those that have ended before then: one that died again meanwhile is open, and stays.

    What was done with a letter is kept in the trail, which names it in words; what it has in common with others is
    theirs as well.
    """
    statement = (
        select(letters.c.id, letters.c.kind_id, letters.c.status)
        .where(letters.c.id.in_(ids), letters.c.status.in_(ENDED), letters.c.status_at < moment, _NOT_NEEDED)
        .order_by(letters.c.id)
        .with_for_update()
    )
    found = connection.execute(statement).all()
    if found:
        connection.execute(delete(letters).where(letters.c.id.in_([row.id for row in found])))
        tallies.add(connection, {pair: -count for pair, count in Counter((r.kind_id, r.status) for r in found).items()})
    return len(found)
