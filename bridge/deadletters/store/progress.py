"""How far a plan is, wave by wave, and with which of its letters something is the matter."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, func, select

from bridge.deadletters.plan.plan import ItemState
from bridge.deadletters.store.schema import items, kinds, letters


class Stood(NamedTuple):
    """How far a plan is with a wave.

    Attributes:
        outcomes: how many of its deliveries are how far.
        sent_at: when the first of it was sent, ms since the epoch, as all times here.
        ended_at: when it was known of the last one so far how it ended.
    """

    wave: int
    outcomes: dict[str, int]
    sent_at: int | None
    ended_at: int | None


def waves(connection: Connection, plan_id: int) -> list[Stood]:
    """Return a plan's waves, in their order."""
    times = (func.min(items.c.sent_at), func.max(items.c.ended_at))
    asked = select(items.c.wave, items.c.state, func.count(), *times).where(items.c.plan_id == plan_id)
    found: dict[int, list[Any]] = defaultdict(list)
    for row in connection.execute(asked.group_by(items.c.wave, items.c.state).order_by(items.c.wave)):
        found[row[0]].append(row)
    return [
        Stood(
            wave,
            {row[1]: row[2] for row in rows},
            min((row[3] for row in rows if row[3] is not None), default=None),
            max((row[4] for row in rows if row[4] is not None), default=None),
        )
        for wave, rows in found.items()
    ]


def dead(connection: Connection, plan_id: int, limit: int) -> Sequence[Row[Any]]:
    """Letters of a plan that died again: its latest."""
    its = [kinds.c[name] for name in ("topic", "handler", "error_class", "version")]
    has = [letters.c[name] for name in ("id", "partition", "offset", "key", "error_message")]
    how = [items.c[name] for name in ("wave", "sent_at", "ended_at")]
    asked = select(*has, *its, *how).join(letters, letters.c.id == items.c.letter_id)
    asked = asked.join(kinds, kinds.c.id == letters.c.kind_id)
    where = (items.c.plan_id == plan_id, items.c.state == ItemState.DEAD)
    return connection.execute(asked.where(*where).order_by(items.c.position.desc()).limit(limit)).all()


def ended(connection: Connection, plan_id: int, states: Sequence[ItemState], limit: int) -> list[tuple[str, str, int]]:
    """Of what a plan came to and ended so: how, why, and of how many that is so; the most first."""
    count = func.count()
    asked = select(items.c.state, items.c.why, count).where(items.c.plan_id == plan_id, items.c.state.in_(states))
    asked = asked.group_by(items.c.state, items.c.why).order_by(count.desc(), items.c.why).limit(limit)
    return [(state, why, number) for state, why, number in connection.execute(asked)]


def each(
    connection: Connection, plan_id: int, states: Sequence[ItemState], after: int, limit: int
) -> Sequence[Row[Any]]:
    """The deliveries of a plan behind a position, in their order: how far it is with each.

    Parameters:
        states: empty: all.
    """
    names = ("position", "letter_id", "place", "wave", "state", "why", "sent_at", "ended_at")
    asked = select(*(items.c[name] for name in names)).where(items.c.plan_id == plan_id, items.c.position > after)
    if states:
        asked = asked.where(items.c.state.in_(states))
    return connection.execute(asked.order_by(items.c.position).limit(limit)).all()
