"""Letters put into the database by hand, for tests of what is done with them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from sqlalchemy import Connection, insert, select

from bridge.deadletters.db import kind_rows
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.table_definitions import edits, groups, kinds, letters
from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.stored_letter import LetterKind, LetterStatus

_digests: Iterator[int] = count(1)


def kind(connection: Connection, handler: str = "orders.handlers.charge", topic: str = "orders", **other: Any) -> int:
    """The id of a kind, made where it is not there."""
    group = FailureGroup(
        handler, other.pop("error_class", "builtins.ValueError"), other.pop("place", "orders/bank.py:pay")
    )
    made = LetterKind(
        group, topic, **{"origin": "bridge", "consumer_group": "bridge", "reason": "exhausted", "version": ""} | other
    )
    found = connection.execute(select(kinds.c.id).where(kinds.c.digest == made.digest)).scalar()
    if found is not None:
        return int(found)
    row = {"digest": group.digest, **group._asdict(), "first_at": 0, "last_at": 0}
    group_id = connection.execute(select(groups.c.id).where(groups.c.digest == group.digest)).scalar()
    group_id = group_id or connection.execute(insert(groups).values(row).returning(groups.c.id)).scalar_one()
    common = {name: value for name, value in made._asdict().items() if name != "group"}
    row = {"digest": made.digest, "group_id": group_id, "handler": group.handler, "error_class": group.error_class}
    return int(connection.execute(insert(kinds).values(row | common).returning(kinds.c.id)).scalar_one())


def letter(
    connection: Connection, kind_id: int, offset: int, status: LetterStatus = LetterStatus.OPEN, **other: Any
) -> int:
    """The id of a letter that was just made, counted as the recorder counts it."""
    row = {
        "digest": next(_digests).to_bytes(16, "big"),
        "kind_id": kind_id,
        "status": status,
        "status_at": 0,
        "topic_id": "log",
        "partition": 0,
        "offset": offset,
        "timestamp": 1,
        "key": b"k",
        "key_digest": 1,
        "value": b"{}",
        "value_size": 2,
        "headers": b"",
        "number": 1,
        "runs": 3,
        "failed": 3,
        "lost": 0,
        "postponed": 0,
        "replayed": 0,
        "error_message": "no",
        "first_failed_at": 1,
        "failed_at": 2,
        "recorded_at": 3,
        "letter_topic": "orders.dlq",
        "letter_partition": 0,
        "letter_offset": offset,
        "occurrences": 1,
        "failures": 1,
    }
    kind_rows.add_to_tallies(connection, {(kind_id, str(status)): 1})
    return int(connection.execute(insert(letters).values(row | other).returning(letters.c.id)).scalar_one())


def counted(connection: Connection, kind_id: int) -> dict[str, int]:
    """The tallies of a kind, without what is 0."""
    table = tables.tallies
    rows = connection.execute(select(table.c.status, table.c.count).where(table.c.kind_id == kind_id))
    return {row[0]: row[1] for row in rows if row[1]}


def group_of(connection: Connection, kind_id: int) -> int:
    """The group of a kind."""
    return int(connection.execute(select(kinds.c.group_id).where(kinds.c.id == kind_id)).scalar_one())


def edits_of(connection: Connection, plan_id: int) -> dict[int, bytes | None]:
    """The values that a plan sends in the place of letters' own, by letter."""
    asked = select(edits.c.letter_id, edits.c.value).where(edits.c.plan_id == plan_id)
    return {row.letter_id: row.value for row in connection.execute(asked)}
