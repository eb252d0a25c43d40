"""A plan's order and its waves, where it was not known from the start which deliveries it has."""

from collections import defaultdict
from typing import Final

from sqlalchemy import Connection, bindparam, func, select, update

from bridge.deadletters.plan.canary import WAVES, wave_of
from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.schema import items, letters

#: How many are in waves before the last.
_EARLY: Final = sum(WAVES)


def cut(connection: Connection, plan_id: int, first: int = 0) -> None:
    """Cut what of a plan waits into the waves of a canary; what was left out is in none.

    Parameters:
        first: the number of the first of these waves.
    """
    waiting = (items.c.plan_id == plan_id, items.c.state == ItemState.WAITING)
    connection.execute(update(items).where(*waiting).values(wave=first + len(WAVES)))
    asked = select(items.c.position).where(*waiting).order_by(items.c.position).limit(_EARLY)
    by_wave: dict[int, list[int]] = defaultdict(list)
    for number, position in enumerate(connection.execute(asked).scalars(), 1):
        by_wave[wave_of(number)].append(position)
    for wave, positions in by_wave.items():
        connection.execute(update(items).where(*waiting, items.c.position.in_(positions)).values(wave=first + wave))


def cut_again(connection: Connection, plan_id: int) -> int:
    """Cut what is left of a stopped canary into new waves behind the last that was sent; return the first of them."""
    sent = (items.c.plan_id == plan_id, items.c.state != ItemState.WAITING, items.c.sent_at.is_not(None))
    last = connection.execute(select(func.max(items.c.wave)).where(*sent)).scalar()
    first = 0 if last is None else last + 1
    cut(connection, plan_id, first)
    return first


def in_order(connection: Connection, plan_id: int) -> None:
    """Number the deliveries of a plan anew, in the order in which their messages were produced."""
    of_plan = items.c.plan_id == plan_id
    asked = select(items.c.position).join(letters, letters.c.id == items.c.letter_id).where(of_plan)
    order = connection.execute(asked.order_by(letters.c.offset, letters.c.partition, items.c.position)).scalars()
    # By way of negative numbers: no two may be at one position meanwhile. And one by one: of a plan that was just made
    # PostgreSQL has no statistics, and joins it in squares.
    aside = update(items).where(of_plan, items.c.position == bindparam("at")).values(position=bindparam("to"))
    if rows := [{"at": position, "to": -number} for number, position in enumerate(order, 1)]:
        connection.execute(aside, rows)
    connection.execute(update(items).where(of_plan).values(position=-items.c.position))
