"""The deliveries of a plan, and how far it is with each: waiting → claimed → sent → how it ended; or skipped, refused.

Only who holds the plan's lease claims, and says what was sent. How what was sent ended may be known by anybody, and
before that: what has ended stays so.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)

from bridge.deadletters.letters.letter import Identity
from bridge.deadletters.plan.canary import WAVES, wave_of
from bridge.deadletters.plan.plan import UNDER_WAY, ItemState
from bridge.deadletters.store import spots
from bridge.deadletters.store.among import among
from bridge.deadletters.store.schema import items, kinds, letters
from bridge.deadletters.store.spots import Spot
from bridge.deadletters.store.statuses import in_parts
from bridge.records.origin import Origin


class Item(NamedTuple):
    """A delivery of a plan.

    Attributes:
        position: in the plan, from 1 on.
        letter_id: whose record is sent; `None`: that of no letter.
        place: the delivery, where it is another one than the letter's.
        failures: how often the letter had died when the plan was made.
        lane: that it has; `None`: none, or that of the letter, which is known once the plan is begun.
        wave: of a canary, from 0 on.
    """

    position: int
    letter_id: int | None
    place: str | None
    failures: int
    lane: int | None = None
    wave: int = 0


class Where(NamedTuple):
    """Where the record of a letter that was sent back lies, and since when (ms)."""

    spot: Spot
    at: int


class Other(NamedTuple):
    """A delivery that was sent and is no letter's own.

    Attributes:
        number: under which it was sent.
    """

    plan_id: int
    position: int
    delivery: Origin
    number: int
    where: Where


_COLUMNS = [items.c[name] for name in Item._fields]
#: A delivery's state, for who knows its position: by the index of states a database would look, for each batch, through
#: all of the plan that has the same state.
STATE: Final = func.coalesce(items.c.state, literal_column("''"))

_BECOME: Final = (
    update(items)
    .where(items.c.plan_id == bindparam("of_plan"), items.c.position == bindparam("its_position"))
    .where(STATE == ItemState.WAITING)
    .values(letter_id=bindparam("its_letter"), place=None, failures=bindparam("its_failures"))
)


def freeze(connection: Connection, plan_id: int, chosen: Select[Any], *, canary: bool) -> int:
    """Take these letters into a plan, in the order in which they were produced; how many they are.

    Parameters:
        chosen: ids of letters, and how often each has died.
    """
    these = chosen.subquery()
    ordered = func.row_number().over(order_by=(letters.c.offset, letters.c.partition, letters.c.id))
    found = select(letters.c.id, letters.c.failures, ordered.label("position")).join(these, these.c.id == letters.c.id)
    rows = found.subquery()
    wave = _wave(rows.c.position) if canary else literal(0, Integer)
    made = select(literal(plan_id), rows.c.position, rows.c.id, rows.c.failures, wave, literal(str(ItemState.WAITING)))
    names = ["plan_id", "position", "letter_id", "failures", "wave", "state"]
    connection.execute(insert(items).from_select(names, made))
    # Not every driver says how many rows a statement of this kind has written.
    last = select(func.max(items.c.position)).where(items.c.plan_id == plan_id)
    return connection.execute(last).scalar_one() or 0


def add(connection: Connection, plan_id: int, others: Sequence[Item], *, canary: bool) -> None:
    """Take further deliveries into a plan."""
    rows = [
        {
            **each._asdict(),
            "plan_id": plan_id,
            "state": ItemState.WAITING,
            "wave": wave_of(each.position) if canary else 0,
        }
        for each in others
    ]
    if rows:
        connection.execute(insert(items), rows)


def page(connection: Connection, plan_id: int, after: int, limit: int) -> list[Item]:
    """Of a plan, the next behind a position."""
    asked = select(*_COLUMNS).where(items.c.plan_id == plan_id, items.c.position > after)
    return [Item(*row) for row in connection.execute(asked.order_by(items.c.position).limit(limit)).all()]


def last_wave(connection: Connection, plan_id: int) -> int:
    """The last wave of a plan; 0 where it has but one, or is no canary."""
    asked = select(func.max(items.c.wave)).where(items.c.plan_id == plan_id)
    return connection.execute(asked).scalar() or 0


def waiting(connection: Connection, plan_id: int, wave: int, limit: int, *, in_lanes: bool = False) -> list[Item]:
    """The next that may go, of a wave and those before it.

    Parameters:
        in_lanes: whether the plan has lanes; then none of a lane of which another plan has something under way.
    """
    asked = select(*_COLUMNS).where(
        items.c.plan_id == plan_id,
        items.c.state == ItemState.WAITING,
        items.c.held == false(),
        items.c.wave <= wave,
    )
    if in_lanes:
        ahead = items.alias()
        # Not as a parameter: so the index of what is under way is used.
        under_way = ahead.c.state.in_([literal_column(f"'{state}'") for state in UNDER_WAY])
        asked = asked.where(~select(ahead.c.position).where(ahead.c.lane == items.c.lane, under_way).exists())
    return [Item(*row) for row in connection.execute(asked.order_by(items.c.position).limit(limit)).all()]


def are_left(connection: Connection, plan_id: int) -> bool:
    """Whether anything of a plan waits, of whichever wave, and also what may not go yet."""
    asked = select(items.c.position).where(items.c.plan_id == plan_id, items.c.state == ItemState.WAITING)
    return connection.execute(asked.limit(1)).first() is not None


def claimed(connection: Connection, plan_id: int, limit: int) -> list[tuple[Item, Spot | None]]:
    """What a process left behind that died: each, and from where on its record lies if it was sent."""
    columns = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    asked = select(*_COLUMNS, *columns).where(items.c.plan_id == plan_id, items.c.state == ItemState.CLAIMED)
    found = []
    for row in connection.execute(asked.order_by(items.c.position).limit(limit)):
        spot = None if row.sent_topic is None else Spot(row.sent_topic, row.sent_partition, row.sent_offset)
        found.append((Item(row.position, row.letter_id, row.place, row.failures, wave=row.wave), spot))
    return found


def claim(connection: Connection, plan_id: int, found: Mapping[int, Spot | None], at: int) -> None:
    """Note that deliveries are about to be sent.

    Parameters:
        found: by position, the end of the partition into which each goes: its record will lie there or behind.
    """
    nowhere = [position for position, spot in found.items() if spot is None]
    _move(connection, plan_id, nowhere, [ItemState.WAITING], state=ItemState.CLAIMED, sent_at=at)
    spots.claimed(connection, plan_id, {position: spot for position, spot in found.items() if spot is not None}, at)


def become(connection: Connection, plan_id: int, found: Sequence[Item]) -> None:
    """Deliveries that have letters by now are their letters' own from now on."""
    rows = [
        {"of_plan": plan_id, "its_position": each.position, "its_letter": each.letter_id, "its_failures": each.failures}
        for each in found
    ]
    if rows:
        connection.execute(_BECOME, rows)


def back(connection: Connection, plan_id: int, positions: Sequence[int]) -> None:
    """Deliveries that were claimed, and of which nothing was done, wait again."""
    _move(connection, plan_id, positions, [ItemState.CLAIMED], state=ItemState.WAITING)


def end(connection: Connection, plan_id: int, whys: Mapping[int, str], to: ItemState, at: int) -> None:
    """Note, by position, how deliveries end that were not sent, and why."""
    by_why: dict[str, list[int]] = defaultdict(list)
    for position, why in whys.items():
        by_why[why].append(position)
    for why, positions in by_why.items():
        begun = [ItemState.WAITING, ItemState.CLAIMED]
        _move(connection, plan_id, positions, begun, state=to, why=why, ended_at=at)


def ended(connection: Connection, letter_ids: Iterable[int], to: ItemState, at: int, why: str = "") -> None:
    """Note how letters ended that plans have sent back; in the transaction that gives them their new status.

    An end that was not known may be known later: the ledger or a new dead letter proves it then.
    """
    # Another plan may have the same letter for something else: a copy.
    its = select(letters.c.plan_id).where(letters.c.id == items.c.letter_id).scalar_subquery()
    own = (items.c.plan_id == its, items.c.place.is_(None), STATE.in_((*UNDER_WAY, ItemState.UNKNOWN)))
    for some in in_parts(sorted(set(letter_ids))):
        connection.execute(
            update(items).where(among(items.c.letter_id, some), *own).values(state=to, ended_at=at, why=why)
        )


def where(connection: Connection, letter_ids: Sequence[int]) -> dict[int, Where]:
    """Where the records of letters lie that are under way."""
    columns = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    own = (items.c.place.is_(None), STATE == ItemState.SENT)
    found: dict[int, Where] = {}
    for some in in_parts(letter_ids):
        asked = select(items.c.letter_id, items.c.sent_at, *columns).where(among(items.c.letter_id, some), *own)
        found |= {row.letter_id: Where(Spot(*row[2:]), row.sent_at) for row in connection.execute(asked).all()}
    return found


def others(connection: Connection, plan_id: int, after: int, limit: int) -> list[Other]:
    """The next deliveries of a plan that were sent, are under way, and no letters' own, behind a position."""
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.consumer_group)
    where = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset, items.c.sent_at)
    asked = select(items.c.plan_id, items.c.position, items.c.place, items.c.number, *whose, *where)
    asked = asked.join(letters, letters.c.id == items.c.letter_id).join(kinds, kinds.c.id == letters.c.kind_id)
    under_way = (items.c.state == ItemState.SENT, items.c.place.is_not(None), items.c.position > after)
    asked = asked.where(items.c.plan_id == plan_id, *under_way)
    return [_other(row) for row in connection.execute(asked.order_by(items.c.position).limit(limit))]


def died(connection: Connection, found: Sequence[Other]) -> list[Other]:
    """Those of these that have a letter of their own by now."""
    digests = {Identity(each.delivery.group, *each.delivery[:5]).digest: each for each in found}
    dead: list[Other] = []
    for some in in_parts(list(digests)):
        asked = select(letters.c.digest, letters.c.number).where(letters.c.digest.in_(some))
        rows = ((digests[bytes(row.digest)], row.number) for row in connection.execute(asked))
        dead += [each for each, number in rows if number >= each.number]
    return dead


def end_others(connection: Connection, found: Sequence[Other], to: ItemState, at: int, why: str = "") -> None:
    """Note how deliveries ended that were no letters' own."""
    by_plan: dict[int, list[int]] = defaultdict(list)
    for each in found:
        by_plan[each.plan_id].append(each.position)
    for plan_id, some in by_plan.items():
        _move(connection, plan_id, some, UNDER_WAY, state=to, ended_at=at, why=why)


def counts(connection: Connection, plan_ids: Sequence[int], wave: int | None = None) -> dict[int, dict[str, int]]:
    """By plan, how many of its deliveries have which state; of a wave alone, if it is given."""
    asked = select(items.c.plan_id, items.c.state, func.count()).where(items.c.plan_id.in_(plan_ids))
    if wave is not None:
        asked = asked.where(items.c.wave == wave)
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for plan_id, state, count in connection.execute(asked.group_by(items.c.plan_id, items.c.state)):
        found[plan_id][state] = count
    return dict(found)


def at_positions(plan_id: int, positions: Sequence[int]) -> tuple[ColumnElement[bool], ...]:
    """Those of a plan that are at these positions, at least one: by their key, however large the plan is.

    A database that has no statistics of a plan that was just made would look through all of it, did it not know where
    the positions begin and end.
    """
    among_them = items.c.position.between(min(positions), max(positions))
    return items.c.plan_id == plan_id, among_them, among(items.c.position, positions)


def _move(
    connection: Connection, plan_id: int, positions: Sequence[int], from_: Sequence[ItemState], **values: Any
) -> None:
    for some in in_parts(positions):
        connection.execute(update(items).where(*at_positions(plan_id, some), STATE.in_(from_)).values(values))


def _other(row: Any) -> Other:
    handler = row.place.partition(":")[2]
    delivery = Origin(row.topic, row.topic_id, row.partition, row.offset, handler, row.consumer_group)
    spot = Spot(row.sent_topic, row.sent_partition, row.sent_offset)
    return Other(row.plan_id, row.position, delivery, row.number, Where(spot, row.sent_at))


def _wave(position: Any) -> Any:
    ends = [sum(WAVES[: at + 1]) for at in range(len(WAVES))]
    return case(*((position <= end, wave) for wave, end in enumerate(ends)), else_=len(WAVES))
