"""Letters read: lines of a list, and one with all that belongs to it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from bridge.deadletters.store.matching import one_of
from bridge.deadletters.store.schema import failures, groups, items, kinds, letters, plans, tracebacks

_OF_LETTERS = (
    *(letters.c.id, letters.c.partition, letters.c.offset, letters.c.key, letters.c.error_message, letters.c.status),
    *(letters.c.runs, letters.c.failed_at, letters.c.failures, letters.c.occurrences, letters.c.value_size),
    *(letters.c.plan_id, letters.c.lost),
)
_OF_KINDS = (
    *(kinds.c.handler, kinds.c.topic, kinds.c.reason, kinds.c.error_class, kinds.c.version, kinds.c.origin),
    *(kinds.c.consumer_group, kinds.c.group_id, groups.c.place),
)


def lines(connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
    """What a list shows of these letters, in their order; without those that are gone."""
    found = {row.id: row for row in connection.execute(_lines().where(one_of(letters.c.id, ids)))}
    return [found[each] for each in ids if each in found]


def at(connection: Connection, topic: str, partition: int, offset: int) -> list[Row[Any]]:
    """What a list shows of the letters of a source record, by handler."""
    found = _lines().where(letters.c.partition == partition, letters.c.offset == offset, kinds.c.topic == topic)
    return list(connection.execute(found.order_by(kinds.c.handler, letters.c.id)))


def one(connection: Connection, id_: int) -> Row[Any] | None:
    """All columns of a letter, those of its kind and the text of its traceback."""
    found = select(letters, *_OF_KINDS, tracebacks.c.text.label("traceback")).select_from(
        letters.join(kinds, kinds.c.id == letters.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == letters.c.traceback_id)
    )
    return connection.execute(found.where(letters.c.id == id_)).one_or_none()


def history(connection: Connection, id_: int) -> list[Row[Any]]:
    """How a letter failed before, oldest first."""
    found = select(failures, *_OF_KINDS, tracebacks.c.text.label("traceback")).select_from(
        failures.join(kinds, kinds.c.id == failures.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == failures.c.traceback_id)
    )
    return list(connection.execute(found.where(failures.c.letter_id == id_).order_by(failures.c.number)))


def in_plans(connection: Connection, id_: int) -> list[Row[Any]]:
    """The plans that a letter is in, oldest first, and how far each is with it; `reason` is the plan's."""
    reason = plans.c.why.label("reason")
    found = select(plans.c.id, plans.c.what, plans.c.by, plans.c.at, reason, items.c.state, items.c.why)
    found = found.add_columns(func.coalesce(items.c.ended_at, items.c.sent_at).label("state_at"))
    found = found.join_from(items, plans, plans.c.id == items.c.plan_id).where(items.c.letter_id == id_)
    return list(connection.execute(found.order_by(plans.c.id)))


def _lines() -> Select[Any]:
    return select(*_OF_LETTERS, *_OF_KINDS).select_from(
        letters.join(kinds, kinds.c.id == letters.c.kind_id).join(groups, groups.c.id == kinds.c.group_id)
    )
