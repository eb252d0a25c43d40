"""The lanes of a plan (deadletters/plan/lanes.py): of each one delivery goes out, the next when it has ended.

So that nobody looks for it among a hundred thousand that wait, each knows the one behind it (`next`), which is `held`
until whoever applies the plan lets it go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, false, func, literal, null, select, update

from bridge.deadletters.plan.lanes import Course
from bridge.deadletters.plan.plan import UNENDED, ItemState
from bridge.deadletters.store.contents import OURS
from bridge.deadletters.store.items import at_positions
from bridge.deadletters.store.schema import items, kinds, letters
from bridge.deadletters.store.statuses import AT_ONCE, in_parts
from bridge.records.origin import Origin

_ENDED: Final = tuple(state for state in ItemState if state not in UNENDED)


class _Laid(NamedTuple):
    position: int
    lane: int | None
    held: bool | None
    next: int | None


_LAY: Final = (
    update(items)
    .where(items.c.plan_id == bindparam("of_plan"), items.c.position == bindparam("its_position"))
    .values(lane=bindparam("its_lane"), held=bindparam("its_held"), next=bindparam("its_next"))
)


class Ended(NamedTuple):
    """What has ended.

    Attributes:
        place: the delivery, where it is no letter's own; else `delivery` says it.
        at: ms since the epoch.
    """

    position: int
    place: str | None
    state: str
    at: int
    delivery: Origin | None


def courses(connection: Connection, topics: Sequence[str]) -> list[tuple[int, str, str, str]]:
    """Of our letters of some topics each kind, with its group, topic and handler."""
    asked = select(kinds.c.id, kinds.c.consumer_group, kinds.c.topic, kinds.c.handler)
    rows = connection.execute(asked.where(kinds.c.topic.in_(topics), kinds.c.origin == OURS).order_by(kinds.c.id))
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def lay(connection: Connection, plan_id: int, found: Mapping[Course, Sequence[int]]) -> None:
    """Give what of a plan has not ended its lanes, in the order of the positions; also if it had them before.

    Parameters:
        found: by course the kinds of its letters.
    """
    ends, after = dict[int, tuple[_Laid, _Laid]](), 0
    while page := _page(connection, plan_id, after, found):
        after = page[-1].position
        passed: list[tuple[_Laid, _Laid]] = []
        for was in page:
            if was.lane is None:
                continue
            ahead = ends.get(was.lane)
            if ahead is not None:
                passed.append((ahead[0]._replace(next=was.position), ahead[1]))
            ends[was.lane] = (was._replace(held=ahead is not None, next=None), was)
        _write(connection, plan_id, passed)
    _write(connection, plan_id, ends.values())


def are_in(connection: Connection, plan_id: int) -> bool:
    """Whether anything of a plan has a lane."""
    asked = select(items.c.position).where(items.c.plan_id == plan_id, items.c.lane.is_not(None)).limit(1)
    return connection.execute(asked).first() is not None


def ended(connection: Connection, plan_id: int) -> list[Ended]:
    """What has ended and has something behind it that is held."""
    message = (letters.c.topic_id, letters.c.partition, letters.c.offset)
    delivery = (kinds.c.topic, *message, kinds.c.handler, kinds.c.consumer_group)
    own = and_(letters.c.id == items.c.letter_id, items.c.place.is_(None))
    asked = select(items.c.position, items.c.place, items.c.state, items.c.ended_at, *delivery).select_from(
        items.outerjoin(letters, own).outerjoin(kinds, kinds.c.id == letters.c.kind_id)
    )
    asked = asked.where(items.c.plan_id == plan_id, items.c.next.is_not(None), items.c.state.in_(_ENDED))
    return [_ended(row) for row in connection.execute(asked.where(items.c.held == false()))]


def let_go(connection: Connection, plan_id: int, positions: Sequence[int]) -> None:
    """Let go what stands behind these."""
    for some in in_parts(positions):
        behind = select(items.c.next).where(*at_positions(plan_id, some), items.c.next.is_not(None))
        found = list(connection.execute(behind).scalars())
        if found:
            connection.execute(update(items).where(*at_positions(plan_id, found)).values(held=False))
        connection.execute(update(items).where(*at_positions(plan_id, some)).values(next=None))


def _ended(row: Any) -> Ended:
    position, place, state, at, *delivery = row
    return Ended(position, place, state, at or 0, None if delivery[0] is None else Origin(*delivery))


def _page(connection: Connection, plan_id: int, after: int, found: Mapping[Course, Sequence[int]]) -> list[_Laid]:
    """The next of what has not ended, with the lanes that they are to have."""
    own = and_(items.c.place.is_(None), letters.c.id.is_not(None))
    numbers = [(and_(own, letters.c.kind_id.in_(ids)), _number(course)) for course, ids in found.items()]
    lane = func.coalesce(items.c.lane, case(*numbers, else_=null())) if numbers else items.c.lane
    # What has none in its row is written, also where it is alone in its lane.
    held = case((items.c.lane.is_(None), null()), else_=items.c.held)
    asked = select(items.c.position, lane, held, items.c.next)
    asked = asked.outerjoin(letters, letters.c.id == items.c.letter_id)
    asked = asked.where(items.c.plan_id == plan_id, items.c.position > after, items.c.state.in_(UNENDED))
    rows = connection.execute(asked.order_by(items.c.position).limit(AT_ONCE))
    return [_Laid(row[0], row[1], row[2], row[3]) for row in rows]


def _write(connection: Connection, plan_id: int, laid: Iterable[tuple[_Laid, _Laid]]) -> None:
    """Write what is not as it was."""
    rows = [{f"its_{name}": value for name, value in now._asdict().items()} for now, was in laid if now != was]
    if rows:
        # One by one, by their key: of a plan that was just made PostgreSQL has no statistics, and joins it in squares.
        connection.execute(_LAY, [{"of_plan": plan_id, **row} for row in rows])


def _number(course: Course) -> Any:
    """`Course.lane`, as SQL."""
    number = _xor(literal(course.number), letters.c.partition)
    return _xor(number, letters.c.key_digest) if course.by_key else number


def _xor(one: Any, other: Any) -> Any:
    """SQLite has no operator for it."""
    return one.bitwise_or(other) - one.bitwise_and(other)
