"""Letters with all that the database has of them, for export and archive."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, Connection, func, select, union_all

from bridge.deadletters.letters.tracebacks import with_message
from bridge.deadletters.store.schema import edits, failures, groups, kinds, letters, tracebacks, trail

#: Bytes of values that are held at once; in a file they take up to four times as much.
BYTES: Final = 8_000_000
#: What letters have in common, as a letter says it.
_KIND: Final = (
    kinds.c.handler,
    kinds.c.topic,
    kinds.c.origin,
    kinds.c.consumer_group,
    kinds.c.reason,
    kinds.c.error_class,
    kinds.c.version,
    groups.c.place,
)
#: Numbers of this database's own, which say nothing elsewhere.
_OWN: Final = frozenset({"kind_id", "traceback_id", "letter_id"})

Row = dict[str, Any]


def fitting(connection: Connection, ids: Sequence[int]) -> Sequence[int]:
    """The first of these letters, of which all values may be in memory at once; one in any case."""
    of = ((letters, letters.c.id), (failures, failures.c.letter_id), (edits, edits.c.letter_id))
    each = [select(id_, func.length(table.c.value)).where(id_.in_(ids)) for table, id_ in of]
    found = union_all(*each).subquery().c
    asked = select(found[0], func.sum(found[1])).group_by(found[0])
    sizes = {id_: int(size or 0) for id_, size in connection.execute(asked)}
    room = BYTES
    for count, id_ in enumerate(ids):
        room -= sizes.get(id_, 0)
        if room < 0:
            return ids[: max(1, count)]
    return ids


def whole(connection: Connection, ids: Sequence[int]) -> list[Row]:
    """Letters by their ids, ascending; one that is gone is left out.

    Returns:
        of each `delivery` (its name), its columns, what it has in common with others, `traceback`, and lists: `history`
        (how it failed before its last failure), `edits`, `trail`.
    """
    history = _of_failures(connection, ids)
    changed = _lists(connection, edits, ids)
    said = _lists(connection, trail, ids)
    columns = [each for each in letters.c if each.name not in _OWN]
    statement = (
        select(*columns, *_KIND, tracebacks.c.text.label("traceback"))
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == letters.c.traceback_id)
        .where(letters.c.id.in_(ids))
        .order_by(letters.c.id)
    )
    found = [_with_traceback(dict(row)) for row in connection.execute(statement).mappings()]
    return [
        {
            "delivery": _name(row),
            **row,
            "history": history[row["id"]],
            "edits": changed[row["id"]],
            "trail": said[row["id"]],
        }
        for row in found
    ]


def _name(row: Row) -> str:
    record = f"{row['topic']}-{row['partition']}-{row['offset']}"
    return f"{record}:{row['handler']}" if row["handler"] else record


def _of_failures(connection: Connection, ids: Sequence[int]) -> dict[int, list[Row]]:
    columns = [each for each in failures.c if each.name not in _OWN]
    statement = (
        select(failures.c.letter_id, *columns, *_KIND, tracebacks.c.text.label("traceback"))
        .join(kinds, kinds.c.id == failures.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == failures.c.traceback_id)
        .where(failures.c.letter_id.in_(ids))
        .order_by(failures.c.letter_id, failures.c.number)
    )
    found: dict[int, list[Row]] = defaultdict(list)
    for row in connection.execute(statement).mappings():
        told = dict(row)
        found[told.pop("letter_id")].append(_with_traceback(told))
    return found


def _lists(connection: Connection, table: Any, ids: Sequence[int]) -> dict[int, list[Row]]:
    columns: list[Column[Any]] = [each for each in table.c if each.name not in (*_OWN, "id", "letter", "group_id")]
    statement = select(table.c.letter_id, *columns).where(table.c.letter_id.in_(ids)).order_by(table.c.id)
    found: dict[int, list[Row]] = defaultdict(list)
    for row in connection.execute(statement).mappings():
        told = dict(row)
        found[told.pop("letter_id")].append(told)
    return found


def _with_traceback(row: Row) -> Row:
    return {**row, "traceback": with_message(row["traceback"] or "", row["error_message"])}
