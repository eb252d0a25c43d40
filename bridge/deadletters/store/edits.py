"""Values that plans send in the place of letters' own."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, insert, select

from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.schema import edits, items
from bridge.deadletters.store.statuses import in_parts

How = Literal["edit", "patch", "upgrade"]

#: Another plan was faster, Kafka did not take it, or nobody has applied it.
_NEVER_SENT: Final = (ItemState.WAITING, ItemState.SKIPPED, ItemState.REFUSED)


class Edit(NamedTuple):
    """A value for a letter.

    Attributes:
        at: ms since the epoch.
        value: `None` is a tombstone.
    """

    letter_id: int
    plan_id: int
    at: int
    by: str
    how: How
    value: bytes | None


_COLUMNS = [edits.c[name] for name in Edit._fields]


def add(connection: Connection, made: Iterable[Edit]) -> None:
    """Keep what plans are to send; each plan has one for a letter at most."""
    if rows := [edit._asdict() for edit in made]:
        connection.execute(insert(edits), rows)


def of_plan(connection: Connection, plan_id: int, letter_ids: Sequence[int]) -> dict[int, Edit]:
    """By letter, what a plan sends in its place; those that it sends as they are have none."""
    found: dict[int, Edit] = {}
    for some in in_parts(letter_ids):
        asked = select(*_COLUMNS).where(edits.c.plan_id == plan_id, edits.c.letter_id.in_(some))
        found |= {row.letter_id: Edit(*row) for row in connection.execute(asked)}
    return found


def of_letter(connection: Connection, letter_id: int) -> list[Edit]:
    """What was sent in a letter's place, oldest first; also by plans of the database that it came from."""
    of_plan = (items.c.plan_id == edits.c.plan_id, items.c.letter_id == edits.c.letter_id, items.c.place.is_(None))
    never = select(items.c.position).where(*of_plan, items.c.state.in_(_NEVER_SENT)).exists()
    asked = select(*_COLUMNS).where(edits.c.letter_id == letter_id, ~never).order_by(edits.c.id)
    return [Edit(*row) for row in connection.execute(asked)]
