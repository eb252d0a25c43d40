"""Letters' values, some at a time, for who asks their handlers what they are worth."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.store.matching import conditions
from bridge.deadletters.store.schema import edits, items, kinds, letters
from bridge.deadletters.store.whole import fitting


class Valued(NamedTuple):
    """A letter's value, and where the record lies that has it.

    Attributes:
        size: in bytes; -1: a tombstone.
        value: `None` for a tombstone, and for what is too large for the database.
    """

    id: int
    handler: str
    size: int
    value: bytes | None
    topic: str
    partition: int
    offset: int

    @property
    def is_kept(self) -> bool:
        """Whether the database has it."""
        return self.value is not None or self.size < 0


_COLUMNS = (
    letters.c.id,
    kinds.c.handler,
    letters.c.value_size,
    letters.c.value,
    letters.c.letter_topic,
    letters.c.letter_partition,
    letters.c.letter_offset,
)


def one(connection: Connection, id_: int) -> Valued | None:
    """A letter's; `None`: there is none of that number."""
    found = select(*_COLUMNS).join(kinds, kinds.c.id == letters.c.kind_id).where(letters.c.id == id_)
    row = connection.execute(found).one_or_none()
    return None if row is None else _valued(*row)


def matching_after(connection: Connection, asked: Filter, after: int, limit: int) -> list[Valued]:
    """The next letters that a filter means, by their ids."""
    # Not by the ids of all that are meant: those would be found anew each time.
    next_ = select(letters.c.id).join(kinds, kinds.c.id == letters.c.kind_id)
    next_ = next_.where(letters.c.id > after, *conditions(asked)).order_by(letters.c.id).limit(limit)
    ids = fitting(connection, [*connection.execute(next_).scalars()])
    return [*_valued_of(connection, ids).values()]


def of_plan_after(connection: Connection, plan_id: int, after: int, limit: int) -> list[tuple[int, Valued]]:
    """The next letters of a plan, each with its position."""
    next_ = (
        select(letters.c.id, items.c.position)
        .join(letters, letters.c.id == items.c.letter_id)
        .where(items.c.plan_id == plan_id, items.c.position > after, items.c.state == "waiting")
        .order_by(items.c.position)
        .limit(limit)
    )
    positions = {row.id: row.position for row in connection.execute(next_)}
    ids = fitting(connection, [*positions])
    found = _valued_of(connection, ids)
    return [(positions[id_], found[id_]) for id_ in ids if id_ in found]


def edited(connection: Connection, plan_id: int, limit: int, after: int = 0) -> list[tuple[Valued, bytes | None]]:
    """The next letters of a plan, by their ids, that go back with another value, each with that."""
    next_ = select(letters.c.id).join(edits, edits.c.letter_id == letters.c.id).order_by(letters.c.id).limit(limit)
    next_ = next_.where(edits.c.plan_id == plan_id, letters.c.id > after)
    ids = fitting(connection, [*connection.execute(next_).scalars()])
    new = select(edits.c.letter_id, edits.c.value).where(edits.c.plan_id == plan_id, edits.c.letter_id.in_(ids))
    made = {id_: None if value is None else bytes(value) for id_, value in connection.execute(new)}
    return [(letter, made[id_]) for id_, letter in _valued_of(connection, ids).items()]


def edits_after(connection: Connection, plan_id: int, after: int) -> bool:
    """Whether a plan has more of these behind a letter."""
    asked = select(edits.c.letter_id).join(letters, letters.c.id == edits.c.letter_id).limit(1)
    asked = asked.where(edits.c.plan_id == plan_id, edits.c.letter_id > after)
    return connection.execute(asked).first() is not None


def _valued_of(connection: Connection, ids: Sequence[int]) -> dict[int, Valued]:
    asked = select(*_COLUMNS).join(kinds, kinds.c.id == letters.c.kind_id).where(letters.c.id.in_(ids))
    return {row.id: _valued(*row) for row in connection.execute(asked.order_by(letters.c.id))}


def _valued(id_: int, handler: str, size: int, value: bytes | None, *place: Any) -> Valued:
    # Drivers of PostgreSQL may give a view of memory.
    return Valued(id_, handler, size, None if value is None else bytes(value), *place)
