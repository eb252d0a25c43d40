"""The letters: lists and pages, status changes with their tallies, and the purge of letters that ended long ago. A
status changes only from the expected one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Row, Select, Table, delete, exists, func, literal_column, or_, select, update

from bridge.deadletters.db import kind_rows
from bridge.deadletters.db.filter_sql import is_one_of, select_matching_letters
from bridge.deadletters.db.sql import is_among
from bridge.deadletters.db.table_definitions import (
    failures,
    groups,
    items,
    kinds,
    letters,
    plans,
    positions,
    tracebacks,
)
from bridge.deadletters.model.bulk_plan import UNDER_WAY, PlanItemState
from bridge.deadletters.model.letter_filter import FilterField, LetterFilter
from bridge.deadletters.model.stored_letter import ENDED, LetterStatus, name_delivery

Value = TypeVar("Value")

#: Ids in one statement: SQLite takes 32,766 values, PostgreSQL 65,535.
IDS_AT_ONCE: Final = 5_000


def change_letter_status(
    connection: Connection,
    ids: Iterable[int],
    from_: LetterStatus,
    to: LetterStatus,
    at: int,
    plan_id: int | None = None,
) -> list[int]:
    """Change the status of those letters that have the expected one, and return their ids, ascending.

    Of two transactions that change the same letter at once, one succeeds; the other finds another status.

    Parameters:
        connection: a transaction that writes.
        at: ms since the epoch.
        plan_id: the plan that replays them from now on; `None`: the column stays.
    """
    changed: dict[str, Any] = {"status": to, "status_at": at} | ({} if plan_id is None else {"plan_id": plan_id})
    moved: list[int] = []
    for some in split_into_batches(sorted(set(ids))):
        found = _lock_with_status(connection, some, from_)
        if not found:
            continue
        mine = [id_ for id_, _ in found]
        connection.execute(update(letters).where(is_among(letters.c.id, mine)).values(changed))
        changes: Counter[tuple[int, str]] = Counter()
        for _, kind in found:
            changes[kind, str(from_)] -= 1
            changes[kind, str(to)] += 1
        kind_rows.add_to_tallies(connection, changes)
        moved += mine
    return moved


def lock_letters(connection: Connection, ids: Iterable[int], status: LetterStatus) -> list[int]:
    """Return the ids of the letters with a status, ascending, locked until the transaction ends."""
    return [
        id_ for some in split_into_batches(sorted(set(ids))) for id_, _ in _lock_with_status(connection, some, status)
    ]


def _lock_with_status(connection: Connection, ids: Sequence[int], status: LetterStatus) -> list[tuple[int, int]]:
    """Return id and kind of the letters with a status, locked until the transaction ends.

    In the order of their ids: otherwise two transactions could deadlock.
    """
    # The status is compared here: by its index SQLite would read all letters with it.
    query = select(letters.c.id, letters.c.kind_id, letters.c.status).where(is_among(letters.c.id, ids))
    rows = connection.execute(query.order_by(letters.c.id).with_for_update()).all()
    return [(id_, kind_id) for id_, kind_id, its in rows if its == status]


def split_into_batches(ids: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """Yield batches of as many values as a statement takes."""
    return (ids[at : at + IDS_AT_ONCE] for at in range(0, len(ids), IDS_AT_ONCE))


#: A literal: the partial index of replaying letters is not used for a parameter.
_REPLAYING: Final = letters.c.status == literal_column(f"'{LetterStatus.REPLAYING}'")
#: The condition that the plan that replayed a letter has its outcome as unknown.
IS_UNKNOWN: Final = (
    select(items.c.position)
    .where(
        # The sum keeps a database without statistics from reading all items of the plan for each letter.
        *(items.c.letter_id == letters.c.id, items.c.plan_id + 0 == letters.c.plan_id, items.c.place.is_(None)),
        func.coalesce(items.c.state, literal_column("''")) == PlanItemState.UNKNOWN,
    )
    .correlate(letters)
    .exists()
)


def find_unknown_letters(
    connection: Connection, plan_id: int | None, ids: Sequence[int] | None, limit: int
) -> list[int]:
    """Return the ids of the first letters with an unknown outcome, of a plan or of these ids alone if given."""
    query = select(letters.c.id).where(_REPLAYING, IS_UNKNOWN)
    if plan_id is not None:
        query = query.where(letters.c.plan_id == plan_id)
    if ids is not None:
        query = query.where(is_among(letters.c.id, ids))
    return list(connection.execute(query.order_by(letters.c.id).limit(limit)).scalars())


def count_unknown_letters(connection: Connection) -> tuple[int, int | None]:
    """Return how many letters have an unknown outcome, and when the oldest was replayed (ms since the epoch)."""
    query = select(func.count(), func.min(letters.c.status_at)).where(_REPLAYING, IS_UNKNOWN)
    number, since = connection.execute(query).one()
    return int(number), since


#: The condition that no plan in flight needs the letter: another handler's delivery takes its record from it.
_NOT_NEEDED: Final = ~exists().where(items.c.letter_id == letters.c.id, items.c.state.in_(UNDER_WAY))


def find_letters_ended_before(connection: Connection, moment: int, most: int) -> list[int]:
    """Return the ids of letters that were resolved, discarded or archived before a time (ms since the epoch)."""
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


class LetterEnd(NamedTuple):
    """The end of a letter.

    Attributes:
        at: ms since the epoch.
    """

    at: int
    id: int


def find_last_ended_letters(
    connection: Connection, status: LetterStatus, since: int, before: LetterEnd | None, most: int
) -> list[LetterEnd]:
    """Return the letters that ended with a status since a time (ms since the epoch), the latest first.

    Parameters:
        before: the last one of the page before; `None`: the first page.
    """
    query = select(letters.c.status_at, letters.c.id).where(letters.c.status == status, letters.c.status_at >= since)
    if before is not None:
        earlier = or_(letters.c.status_at < before.at, letters.c.id < before.id)
        query = query.where(letters.c.status_at <= before.at, earlier)
    rows = connection.execute(query.order_by(letters.c.status_at.desc(), letters.c.id.desc()).limit(most))
    return [LetterEnd(*row) for row in rows]


def purge_letters(connection: Connection, ids: Sequence[int], moment: int) -> int:
    """Delete letters that ended before a time; one that died again meanwhile is open, and stays.

    The audit log keeps the actions on a letter, with its name; rows that it shares with other letters
    stay.
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
        kind_rows.add_to_tallies(
            connection, {pair: -count for pair, count in Counter((r.kind_id, r.status) for r in found).items()}
        )
    return len(found)


_LETTER_COLUMNS = [
    letters.c[name]
    for name in (
        *("id", "partition", "offset", "key", "error_message", "status", "runs", "failed_at", "failures"),
        *("occurrences", "value_size", "plan_id", "lost"),
    )
]
_KIND_COLUMNS = (
    *(kinds.c.handler, kinds.c.topic, kinds.c.reason, kinds.c.error_class, kinds.c.version, kinds.c.origin),
    *(kinds.c.consumer_group, kinds.c.group_id, groups.c.place),
)


def read_letter_lines(connection: Connection, ids: Sequence[int]) -> list[Row[Any]]:
    """Return the rows of a list for these letters, in their order, without those that are gone."""
    found = {row.id: row for row in connection.execute(_select_letter_lines().where(is_one_of(letters.c.id, ids)))}
    return [found[id_] for id_ in ids if id_ in found]


def read_letters_of_record(connection: Connection, topic: str, partition: int, offset: int) -> list[Row[Any]]:
    """Return the rows of a list for the letters of a source record, by handler."""
    found = _select_letter_lines().where(
        letters.c.partition == partition, letters.c.offset == offset, kinds.c.topic == topic
    )
    return list(connection.execute(found.order_by(kinds.c.handler, letters.c.id)))


def find_recorded_places(
    connection: Connection, topic: str, handler: str, places: Iterable[tuple[int, int]]
) -> set[tuple[int, int]]:
    """Return the places (partition and offset) of a topic of which there is a letter of a handler."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for partition, offset in places:
        offsets[partition].append(offset)
    found: set[tuple[int, int]] = set()
    for partition, some in offsets.items():
        query = select(letters.c.offset).join(kinds, kinds.c.id == letters.c.kind_id)
        is_there = (letters.c.partition == partition, is_one_of(letters.c.offset, some))
        rows = connection.execute(query.where(*is_there, kinds.c.topic == topic, kinds.c.handler == handler))
        found |= {(partition, offset) for offset in rows.scalars()}
    return found


def read_letter(connection: Connection, id_: int) -> Row[Any] | None:
    """Return all columns of a letter, of its kind, and the text of its traceback."""
    found = _select_with_traceback(letters).where(letters.c.id == id_)
    return connection.execute(found).one_or_none()


def read_letter_history(connection: Connection, id_: int) -> list[Row[Any]]:
    """Return the earlier failures of a letter, oldest first."""
    found = _select_with_traceback(failures).where(failures.c.letter_id == id_)
    return list(connection.execute(found.order_by(failures.c.number)))


def _select_with_traceback(table: Table) -> Select[Any]:
    return select(table, *_KIND_COLUMNS, tracebacks.c.text.label("traceback")).select_from(
        table.join(kinds, kinds.c.id == table.c.kind_id)
        .join(groups, groups.c.id == kinds.c.group_id)
        .outerjoin(tracebacks, tracebacks.c.id == table.c.traceback_id)
    )


def read_plans_of_letter(connection: Connection, id_: int) -> list[Row[Any]]:
    """Return the plans that a letter is in, oldest first, with its state in each; `reason` is the plan's."""
    reason = plans.c.why.label("reason")
    found = select(plans.c.id, plans.c.what, plans.c.by, plans.c.at, reason, items.c.state, items.c.why)
    found = found.add_columns(func.coalesce(items.c.ended_at, items.c.sent_at).label("state_at"))
    found = found.join_from(items, plans, plans.c.id == items.c.plan_id).where(items.c.letter_id == id_)
    return list(connection.execute(found.order_by(plans.c.id)))


def _select_letter_lines() -> Select[Any]:
    return select(*_LETTER_COLUMNS, *_KIND_COLUMNS).select_from(
        letters.join(kinds, kinds.c.id == letters.c.kind_id).join(groups, groups.c.id == kinds.c.group_id)
    )


def name_letters(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the names of letters by id, without those that do not exist."""
    found = (
        select(letters.c.id, kinds.c.topic, letters.c.partition, letters.c.offset, kinds.c.handler)
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .where(letters.c.id.in_(ids))
    )
    return {id_: name_delivery(*delivery) for id_, *delivery in connection.execute(found)}


def is_group_there(connection: Connection, id_: int) -> bool:
    """Return whether a group exists."""
    return connection.execute(select(groups.c.id).where(groups.c.id == id_)).first() is not None


def is_anything_recorded(connection: Connection) -> bool:
    """Return whether a letter was ever recorded or imported."""
    return any(connection.execute(select(table.c[0]).limit(1)).first() for table in (positions, kinds))


def read_known_names(connection: Connection, field: FilterField) -> list[str]:
    """Return the values of a filter's field that letters have had."""
    return sorted(connection.execute(select(kinds.c[field.column]).distinct()).scalars())


def find_missing_ids(connection: Connection, filter_: LetterFilter) -> tuple[Sequence[int], Sequence[int]]:
    """Return the letters, and the groups, that a filter names and that do not exist."""
    found: set[int] = set()
    for some in split_into_batches(filter_.ids):
        found |= set(connection.execute(select(letters.c.id).where(letters.c.id.in_(some))).scalars())
    there = set(connection.execute(select(groups.c.id).where(groups.c.id.in_(filter_.groups))).scalars())
    return [id_ for id_ in filter_.ids if id_ not in found], [id_ for id_ in filter_.groups if id_ not in there]


#: Rows that are fetched at once.
ROWS_AT_ONCE = 5_000


class FailingLetter(NamedTuple):
    """The facts about a letter's failures.

    Attributes:
        runs: the runs of its handler.
        first_failed_at, failed_at: ms since the epoch.
    """

    group: int
    error_class: str
    reason: str
    runs: int
    first_failed_at: int
    failed_at: int


def stream_failures(
    connection: Connection, filter_: LetterFilter, among: Sequence[int] | None = None
) -> Iterator[FailingLetter]:
    """Yield the letters of a filter, unordered.

    Parameters:
        among: as in `filter_sql.build_letter_conditions`.
    """
    columns = (kinds.c.group_id, kinds.c.error_class, kinds.c.reason)
    times = (letters.c.runs, letters.c.first_failed_at, letters.c.failed_at)
    found = (
        select_matching_letters(filter_, among)
        .with_only_columns(*columns, *times)
        .join(kinds, kinds.c.id == letters.c.kind_id)
    )
    return (FailingLetter(*row) for row in _stream_rows(connection, found))


def stream_resolutions(connection: Connection, handler: str) -> Iterator[tuple[int, int]]:
    """Yield the groups of a handler, each with the time of a successful replay (ms since the epoch)."""
    found = (
        select(kinds.c.group_id, letters.c.status_at)
        .join(kinds, kinds.c.id == letters.c.kind_id)
        .where(kinds.c.handler == handler, letters.c.status == LetterStatus.RESOLVED)
    )
    return ((row.group_id, row.status_at) for row in _stream_rows(connection, found))


def _stream_rows(connection: Connection, statement: Select[Any]) -> Any:
    return connection.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))
