"""The items of a plan, one for each delivery, with their states: waiting, claimed, sent, and an outcome; or skipped,
refused. Only the process with the plan's lease claims and notes what was sent. Any process may note an outcome, and
an outcome stays.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    TextClause,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)

from bridge.deadletters.db.letter_rows import split_into_batches
from bridge.deadletters.db.sql import is_among
from bridge.deadletters.db.table_definitions import items, letters
from bridge.deadletters.model.bulk_plan import UNDER_WAY, PlanItemState
from bridge.deadletters.model.plan_order import WAVES, find_wave


class LogPosition(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class SentRecord(NamedTuple):
    """A record that was published for a delivery, with its number and position."""

    position: int
    number: int
    spot: LogPosition


def note_claims(connection: Connection, plan_id: int, found: Mapping[int, LogPosition], at: int) -> None:
    """Note that waiting deliveries are about to be sent, each to this position or behind it.

    Parameters:
        found: by position.
    """
    if connection.dialect.name == "postgresql":
        _write_together(
            connection, _NOTE_CLAIMS_TOGETHER, plan_id, [SentRecord(each, 0, spot) for each, spot in found.items()], at
        )
    elif found:
        rows = [(*spot, at, plan_id, position) for position, spot in found.items()]
        connection.exec_driver_sql(_NOTE_CLAIM, rows)


def note_sent_records(connection: Connection, plan_id: int, found: Sequence[SentRecord], at: int) -> None:
    """Note the records that Kafka has; for a delivery that has ended meanwhile, only the position."""
    if connection.dialect.name == "postgresql":
        _write_together(connection, _NOTE_SENT_TOGETHER, plan_id, found, at)
    elif found:
        rows = [(record.number, *record.spot, at, plan_id, record.position) for record in found]
        connection.exec_driver_sql(_NOTE_SENT, rows)


def _write_together(
    connection: Connection, what: TextClause, plan_id: int, found: Iterable[SentRecord], at: int
) -> None:
    """Write all records of one topic in one statement."""
    for topic, some in _group_by_topic(found):
        positions, numbers, spots = zip(*some, strict=True)
        _, partitions, offsets = zip(*spots, strict=True)
        lists = {"positions": positions, "numbers": numbers, "partitions": partitions, "offsets": offsets}
        given = {name: ",".join(map(str, each)) for name, each in lists.items() if f":{name}" in what.text}
        common = {"plan": plan_id, "at": at, "topic": topic, "first": positions[0], "last": positions[-1]}
        connection.execute(what, common | given)


def _group_by_topic(found: Iterable[SentRecord]) -> Iterator[tuple[str, list[SentRecord]]]:
    """Yield the records of each topic in the order of their positions, which the SQL needs."""
    by_topic: dict[str, list[SentRecord]] = defaultdict(list)
    for record in sorted(found):
        by_topic[record.spot.topic].append(record)
    yield from by_topic.items()


def _write_list(name: str, type_: str) -> str:
    """Return SQL for a list given as text; in a SELECT of its own, or it would be parsed for each row."""
    return f"CAST((SELECT CAST(string_to_array(:{name}, ',') AS {type_}[])) AS {type_}[])"


def _write_list_item(name: str, type_: str) -> str:
    """Return SQL for a row's element of a list; `width_bucket` finds it by binary search."""
    return f"({_write_list(name, type_)})[width_bucket(position, {_write_list('positions', 'int')})]"


_NOTE_CLAIM: Final = (
    "UPDATE items SET state = 'claimed', sent_topic = ?, sent_partition = ?, sent_offset = ?, sent_at = ? "
    "WHERE plan_id = ? AND position = ? AND COALESCE(state, '') = 'waiting'"
)
_NOTE_SENT: Final = (
    "UPDATE items SET state = CASE state WHEN 'claimed' THEN 'sent' ELSE state END, number = ?, sent_topic = ?, "
    "sent_partition = ?, sent_offset = ?, sent_at = ? WHERE plan_id = ? AND position = ?"
)
#: Not a join with the values: the database has no statistics of a new plan, and would read all of it
#: for each value.
_SENT_COLUMNS: Final = (
    f"sent_topic = :topic, sent_partition = {_write_list_item('partitions', 'int')}, sent_offset = "
    f"{_write_list_item('offsets', 'bigint')}, "
    "sent_at = :at WHERE plan_id = :plan AND position BETWEEN :first AND :last "
    f"AND position = ANY({_write_list('positions', 'int')})"
)
_NOTE_CLAIMS_TOGETHER: Final = text(
    f"UPDATE items SET state = 'claimed', {_SENT_COLUMNS} AND COALESCE(state, '') = 'waiting'"
)
_NOTE_SENT_TOGETHER: Final = text(
    f"UPDATE items SET state = CASE state WHEN 'claimed' THEN 'sent' ELSE state END, "
    f"number = {_write_list_item('numbers', 'int')}, {_SENT_COLUMNS}"
)


class PlanItem(NamedTuple):
    """A delivery of a plan.

    Attributes:
        position: in the plan, from 1 on.
        letter_id: the letter whose record is sent; `None`: no letter.
        place: the delivery, if it is not the letter's own.
        failures: how often the letter had died when the plan was made.
        lane: its lane; `None`: none, or the letter's, which is known when the plan begins.
        wave: of a canary, from 0 on.
    """

    position: int
    letter_id: int | None
    place: str | None
    failures: int
    lane: int | None = None
    wave: int = 0


class SentPosition(NamedTuple):
    """The position of the record of a replayed letter, and the time when it was sent (ms)."""

    spot: LogPosition
    at: int


_ITEM_COLUMNS = [items.c[name] for name in PlanItem._fields]
#: The state, for queries by position: by the index of states a database would read, for each batch,
#: all items of the plan with the same state.
ITEM_STATE: Final = func.coalesce(items.c.state, literal_column("''"))

_NOTE_OWN_LETTER: Final = (
    update(items)
    .where(items.c.plan_id == bindparam("of_plan"), items.c.position == bindparam("its_position"))
    .where(ITEM_STATE == PlanItemState.WAITING)
    .values(letter_id=bindparam("its_letter"), place=None, failures=bindparam("its_failures"))
)


def freeze_letters(connection: Connection, plan_id: int, chosen: Select[Any], *, canary: bool) -> int:
    """Add letters to a plan in the order in which they were produced; return how many.

    Parameters:
        chosen: the query of letter ids, and how often each has died.
    """
    these = chosen.subquery()
    ordered = func.row_number().over(order_by=(letters.c.offset, letters.c.partition, letters.c.id))
    found = select(letters.c.id, letters.c.failures, ordered.label("position")).join(these, these.c.id == letters.c.id)
    rows = found.subquery()
    wave = _write_wave(rows.c.position) if canary else literal(0, Integer)
    made = select(
        literal(plan_id), rows.c.position, rows.c.id, rows.c.failures, wave, literal(str(PlanItemState.WAITING))
    )
    names = ["plan_id", "position", "letter_id", "failures", "wave", "state"]
    connection.execute(insert(items).from_select(names, made))
    # Not every driver returns the number of rows of such a statement.
    last = select(func.max(items.c.position)).where(items.c.plan_id == plan_id)
    return connection.execute(last).scalar_one() or 0


def add_items(connection: Connection, plan_id: int, others: Sequence[PlanItem], *, canary: bool) -> None:
    """Add further deliveries to a plan."""
    rows = [
        {
            **item._asdict(),
            "plan_id": plan_id,
            "state": PlanItemState.WAITING,
            "wave": find_wave(item.position) if canary else 0,
        }
        for item in others
    ]
    if rows:
        connection.execute(insert(items), rows)


def read_items(connection: Connection, plan_id: int, after: int, limit: int) -> list[PlanItem]:
    """Return the next items of a plan after a position."""
    query = select(*_ITEM_COLUMNS).where(items.c.plan_id == plan_id, items.c.position > after)
    return [PlanItem(*row) for row in connection.execute(query.order_by(items.c.position).limit(limit)).all()]


def find_last_wave(connection: Connection, plan_id: int) -> int:
    """Return the last wave of a plan; 0 if it has one wave or is no canary."""
    query = select(func.max(items.c.wave)).where(items.c.plan_id == plan_id)
    return connection.execute(query).scalar() or 0


def read_waiting_items(
    connection: Connection, plan_id: int, wave: int, limit: int, *, in_lanes: bool = False
) -> list[PlanItem]:
    """Return the next items that may be sent, of a wave and those before it.

    Parameters:
        in_lanes: whether the plan has lanes; a lane with a delivery of another plan in flight is left out.
    """
    query = select(*_ITEM_COLUMNS).where(
        items.c.plan_id == plan_id,
        items.c.state == PlanItemState.WAITING,
        items.c.held == false(),
        items.c.wave <= wave,
    )
    if in_lanes:
        ahead = items.alias()
        # Literals: the partial index of items in flight is not used for parameters.
        under_way = ahead.c.state.in_([literal_column(f"'{state}'") for state in UNDER_WAY])
        query = query.where(~select(ahead.c.position).where(ahead.c.lane == items.c.lane, under_way).exists())
    return [PlanItem(*row) for row in connection.execute(query.order_by(items.c.position).limit(limit)).all()]


def has_waiting_items(connection: Connection, plan_id: int) -> bool:
    """Return whether a plan has waiting items, of any wave, also held ones."""
    query = select(items.c.position).where(items.c.plan_id == plan_id, items.c.state == PlanItemState.WAITING)
    return connection.execute(query.limit(1)).first() is not None


def read_claimed_items(connection: Connection, plan_id: int, limit: int) -> list[tuple[PlanItem, LogPosition | None]]:
    """Return the items that a dead process left claimed, each with the position from which its record would lie."""
    columns = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    query = select(*_ITEM_COLUMNS, *columns).where(items.c.plan_id == plan_id, items.c.state == PlanItemState.CLAIMED)
    found = []
    for row in connection.execute(query.order_by(items.c.position).limit(limit)):
        spot = None if row.sent_topic is None else LogPosition(row.sent_topic, row.sent_partition, row.sent_offset)
        found.append((PlanItem(row.position, row.letter_id, row.place, row.failures, wave=row.wave), spot))
    return found


def claim_items(connection: Connection, plan_id: int, found: Mapping[int, LogPosition | None], at: int) -> None:
    """Claim deliveries, which are about to be sent.

    Parameters:
        found: by position, the end of the target partition: the record will lie there or behind.
    """
    nowhere = [position for position, spot in found.items() if spot is None]
    _move_items(connection, plan_id, nowhere, [PlanItemState.WAITING], state=PlanItemState.CLAIMED, sent_at=at)
    note_claims(connection, plan_id, {position: spot for position, spot in found.items() if spot is not None}, at)


def note_own_letters(connection: Connection, plan_id: int, found: Sequence[PlanItem]) -> None:
    """Turn deliveries that have letters by now into their letters' own."""
    rows = [
        {"of_plan": plan_id, "its_position": item.position, "its_letter": item.letter_id, "its_failures": item.failures}
        for item in found
    ]
    if rows:
        connection.execute(_NOTE_OWN_LETTER, rows)


def end_items(
    connection: Connection,
    plan_id: int,
    whys: Mapping[int, str],
    to: PlanItemState,
    at: int,
    from_: Sequence[PlanItemState] = (PlanItemState.WAITING, PlanItemState.CLAIMED),
) -> None:
    """Note, by position, the outcome and reason of deliveries in some states; by default of those that were not
    sent.
    """
    by_why: dict[str, list[int]] = defaultdict(list)
    for position, why in whys.items():
        by_why[why].append(position)
    for why, positions in by_why.items():
        _move_items(connection, plan_id, positions, from_, state=to, why=why, ended_at=at)


def end_items_of_letters(
    connection: Connection, letter_ids: Iterable[int], to: PlanItemState, at: int, why: str = ""
) -> None:
    """Note how replayed letters ended, in the transaction that changes their status.

    An unknown outcome may be known later, if the ledger or a new dead letter proves it.
    """
    # Another plan may copy the same letter.
    its = select(letters.c.plan_id).where(letters.c.id == items.c.letter_id).scalar_subquery()
    own = (items.c.plan_id == its, items.c.place.is_(None), ITEM_STATE.in_((*UNDER_WAY, PlanItemState.UNKNOWN)))
    for some in split_into_batches(sorted(set(letter_ids))):
        connection.execute(
            update(items).where(is_among(items.c.letter_id, some), *own).values(state=to, ended_at=at, why=why)
        )


def read_sent_positions(connection: Connection, letter_ids: Sequence[int]) -> dict[int, SentPosition]:
    """Return the positions of the records of letters in flight."""
    columns = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    own = (items.c.place.is_(None), ITEM_STATE == PlanItemState.SENT)
    found: dict[int, SentPosition] = {}
    for some in split_into_batches(letter_ids):
        query = select(items.c.letter_id, items.c.sent_at, *columns).where(is_among(items.c.letter_id, some), *own)
        found |= {
            row.letter_id: SentPosition(LogPosition(*row[2:]), row.sent_at) for row in connection.execute(query).all()
        }
    return found


def count_item_states(
    connection: Connection, plan_ids: Sequence[int], wave: int | None = None
) -> dict[int, dict[str, int]]:
    """Return, by plan, how many items have which state; of one wave if given."""
    query = select(items.c.plan_id, items.c.state, func.count()).where(items.c.plan_id.in_(plan_ids))
    if wave is not None:
        query = query.where(items.c.wave == wave)
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for plan_id, state, count in connection.execute(query.group_by(items.c.plan_id, items.c.state)):
        found[plan_id][state] = count
    return dict(found)


def build_position_conditions(plan_id: int, positions: Sequence[int]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on the items at these positions (at least one), by the primary key.

    Without the range, a database without statistics of a new plan would read all of it.
    """
    among_them = items.c.position.between(min(positions), max(positions))
    return items.c.plan_id == plan_id, among_them, is_among(items.c.position, positions)


def _move_items(
    connection: Connection, plan_id: int, positions: Sequence[int], from_: Sequence[PlanItemState], **values: Any
) -> None:
    for some in split_into_batches(positions):
        connection.execute(
            update(items).where(*build_position_conditions(plan_id, some), ITEM_STATE.in_(from_)).values(values)
        )


def _write_wave(position: Any) -> Any:
    ends = [sum(WAVES[: at + 1]) for at in range(len(WAVES))]
    return case(*((position <= end, wave) for wave, end in enumerate(ends)), else_=len(WAVES))
