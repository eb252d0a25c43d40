"""The lanes and waves of a plan's items.

Each item of a lane has the position of the next one, which is held until the plan runner releases it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, false, func, literal, null, select, update

from bridge.deadletters.db.letter_payload import BRIDGE_PROGRAM
from bridge.deadletters.db.letter_rows import IDS_AT_ONCE, split_into_batches
from bridge.deadletters.db.plan_item_rows import build_position_conditions
from bridge.deadletters.db.table_definitions import items, kinds, letters
from bridge.deadletters.model.bulk_plan import UNENDED, PlanItemState
from bridge.deadletters.model.plan_order import WAVES, OrderedCourse, find_wave
from bridge.formats.delivery_identity import Origin

_ENDED: Final = tuple(state for state in PlanItemState if state not in UNENDED)


class _LaidItem(NamedTuple):
    position: int
    lane: int | None
    held: bool | None
    next: int | None


_SET_LANE: Final = (
    update(items)
    .where(items.c.plan_id == bindparam("of_plan"), items.c.position == bindparam("its_position"))
    .values(lane=bindparam("its_lane"), held=bindparam("its_held"), next=bindparam("its_next"))
)


class EndedItem(NamedTuple):
    """An item that has ended while its successor is held.

    Attributes:
        place: the delivery, if it is no letter's own; else see `delivery`.
        at: ms since the epoch.
        again: whether a letter's own delivery ran though it was done.
    """

    position: int
    place: str | None
    state: str
    at: int
    delivery: Origin | None
    again: bool


def find_ordered_kinds(connection: Connection, topics: Sequence[str]) -> list[tuple[int, str, str, str]]:
    """Return the kinds of this project's letters of some topics, each with group, topic and handler."""
    query = select(kinds.c.id, kinds.c.consumer_group, kinds.c.topic, kinds.c.handler)
    rows = connection.execute(
        query.where(kinds.c.topic.in_(topics), kinds.c.origin == BRIDGE_PROGRAM).order_by(kinds.c.id)
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def lay_lanes(connection: Connection, plan_id: int, found: Mapping[OrderedCourse, Sequence[int]]) -> None:
    """Assign lanes to the unended items of a plan, in the order of positions, replacing old lanes.

    Parameters:
        found: by course, the kinds of its letters.
    """
    ends, after = dict[int, tuple[_LaidItem, _LaidItem]](), 0
    while page := _read_unended_items(connection, plan_id, after, found):
        after = page[-1].position
        passed: list[tuple[_LaidItem, _LaidItem]] = []
        for was in page:
            if was.lane is None:
                continue
            ahead = ends.get(was.lane)
            if ahead is not None:
                passed.append((ahead[0]._replace(next=was.position), ahead[1]))
            ends[was.lane] = (was._replace(held=ahead is not None, next=None), was)
        _write_lanes(connection, plan_id, passed)
    _write_lanes(connection, plan_id, ends.values())


def has_lanes(connection: Connection, plan_id: int) -> bool:
    """Return whether an item of a plan has a lane."""
    query = select(items.c.position).where(items.c.plan_id == plan_id, items.c.lane.is_not(None)).limit(1)
    return connection.execute(query).first() is not None


def read_ended_items(connection: Connection, plan_id: int) -> list[EndedItem]:
    """Return the ended items of a plan whose successors are held."""
    message = (letters.c.topic_id, letters.c.partition, letters.c.offset)
    delivery = (kinds.c.topic, *message, kinds.c.handler, kinds.c.consumer_group)
    own = and_(letters.c.id == items.c.letter_id, items.c.place.is_(None))
    item = (items.c.position, items.c.place, items.c.state, items.c.ended_at, letters.c.again)
    query = select(*item, *delivery).select_from(
        items.outerjoin(letters, own).outerjoin(kinds, kinds.c.id == letters.c.kind_id)
    )
    query = query.where(items.c.plan_id == plan_id, items.c.next.is_not(None), items.c.state.in_(_ENDED))
    return [_build_ended_item(row) for row in connection.execute(query.where(items.c.held == false()))]


def release_held_items(connection: Connection, plan_id: int, positions: Sequence[int]) -> None:
    """Release the successors of the items at these positions."""
    for some in split_into_batches(positions):
        behind = select(items.c.next).where(*build_position_conditions(plan_id, some), items.c.next.is_not(None))
        found = list(connection.execute(behind).scalars())
        if found:
            connection.execute(update(items).where(*build_position_conditions(plan_id, found)).values(held=False))
        connection.execute(update(items).where(*build_position_conditions(plan_id, some)).values(next=None))


def _build_ended_item(row: Any) -> EndedItem:
    position, place, state, at, again, *delivery = row
    origin = None if delivery[0] is None else Origin(*delivery)
    return EndedItem(position, place, state, at or 0, origin, again is not None)


def _read_unended_items(
    connection: Connection, plan_id: int, after: int, found: Mapping[OrderedCourse, Sequence[int]]
) -> list[_LaidItem]:
    """Return the next unended items, with the lanes that they are to have."""
    own = and_(items.c.place.is_(None), letters.c.id.is_not(None))
    numbers = [(and_(own, letters.c.kind_id.in_(ids)), _write_lane_number(course)) for course, ids in found.items()]
    lane = func.coalesce(items.c.lane, case(*numbers, else_=null())) if numbers else items.c.lane
    # A missing lane is written, also for an item alone in its lane.
    held = case((items.c.lane.is_(None), null()), else_=items.c.held)
    query = select(items.c.position, lane, held, items.c.next)
    query = query.outerjoin(letters, letters.c.id == items.c.letter_id)
    query = query.where(items.c.plan_id == plan_id, items.c.position > after, items.c.state.in_(UNENDED))
    rows = connection.execute(query.order_by(items.c.position).limit(IDS_AT_ONCE))
    return [_LaidItem(row[0], row[1], row[2], row[3]) for row in rows]


def _write_lanes(connection: Connection, plan_id: int, laid: Iterable[tuple[_LaidItem, _LaidItem]]) -> None:
    """Write the rows that have changed."""
    rows = [{f"its_{name}": value for name, value in now._asdict().items()} for now, was in laid if now != was]
    if rows:
        # One by one, by the key: without statistics of a new plan PostgreSQL would join in quadratic time.
        connection.execute(_SET_LANE, [{"of_plan": plan_id, **row} for row in rows])


def _write_lane_number(course: OrderedCourse) -> Any:
    """Return SQL for `OrderedCourse.lane`."""
    number = _write_xor(literal(course.number), letters.c.partition)
    return _write_xor(number, letters.c.key_digest) if course.by_key else number


def _write_xor(one: Any, other: Any) -> Any:
    """Return SQL for XOR, for which SQLite has no operator."""
    return one.bitwise_or(other) - one.bitwise_and(other)


#: Number of items in the waves before the last.
_EARLY: Final = sum(WAVES)


def cut_waves(connection: Connection, plan_id: int, first: int = 0) -> None:
    """Assign the waiting items of a plan to the waves of a canary; items that were left out have no wave.

    Parameters:
        first: the number of the first wave.
    """
    waiting = (items.c.plan_id == plan_id, items.c.state == PlanItemState.WAITING)
    connection.execute(update(items).where(*waiting).values(wave=first + len(WAVES)))
    query = select(items.c.position).where(*waiting).order_by(items.c.position).limit(_EARLY)
    by_wave: dict[int, list[int]] = defaultdict(list)
    for number, position in enumerate(connection.execute(query).scalars(), 1):
        by_wave[find_wave(number)].append(position)
    for wave, positions in by_wave.items():
        connection.execute(update(items).where(*waiting, items.c.position.in_(positions)).values(wave=first + wave))


def cut_new_waves(connection: Connection, plan_id: int) -> int:
    """Assign the rest of a stopped canary to new waves; return the number of the first of them."""
    sent = (items.c.plan_id == plan_id, items.c.state != PlanItemState.WAITING, items.c.sent_at.is_not(None))
    last = connection.execute(select(func.max(items.c.wave)).where(*sent)).scalar()
    first = 0 if last is None else last + 1
    cut_waves(connection, plan_id, first)
    return first


def renumber_items(connection: Connection, plan_id: int) -> None:
    """Renumber the items of a plan in the order in which their messages were produced."""
    of_plan = items.c.plan_id == plan_id
    query = select(items.c.position).join(letters, letters.c.id == items.c.letter_id).where(of_plan)
    order = connection.execute(query.order_by(letters.c.offset, letters.c.partition, items.c.position)).scalars()
    # By way of negative numbers, because positions are unique. One by one: without statistics of a new plan
    # PostgreSQL would join in quadratic time.
    aside = update(items).where(of_plan, items.c.position == bindparam("at")).values(position=bindparam("to"))
    if rows := [{"at": position, "to": -number} for number, position in enumerate(order, 1)]:
        connection.execute(aside, rows)
    connection.execute(update(items).where(of_plan).values(position=-items.c.position))
