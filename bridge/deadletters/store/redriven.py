"""Deliveries that redrives have sent and that are no letters: which are under way, and which have a letter by now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, literal_column, select, update

from bridge.deadletters.plan.plan import ItemState, What
from bridge.deadletters.store.items import STATE, at_positions
from bridge.deadletters.store.schema import items, letters, plans
from bridge.deadletters.store.spots import Spot
from bridge.deadletters.store.statuses import in_parts


class Redriven(NamedTuple):
    """A delivery that was sent.

    Attributes:
        place: `orders-3-1234:orders.handlers.charge`.
        number: under which it was sent.
        spot: where its record lies.
        at: when it was sent, ms since the epoch.
    """

    position: int
    place: str
    number: int
    spot: Spot
    at: int


#: Not as a parameter: so the index of states is used.
_UNDER_WAY = (items.c.state == literal_column(f"'{ItemState.SENT}'"), items.c.letter_id.is_(None))


def under_way(connection: Connection) -> list[int]:
    """The redrives that have sent what has not ended."""
    sent = select(items.c.plan_id).where(items.c.plan_id == plans.c.id, *_UNDER_WAY).exists()
    asked = select(plans.c.id).where(plans.c.what == What.REDRIVE, sent).order_by(plans.c.id)
    return list(connection.execute(asked).scalars())


def page(connection: Connection, plan_id: int, after: int, limit: int) -> list[Redriven]:
    """What a plan has sent and has not ended, behind a position."""
    where = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    asked = select(items.c.position, items.c.place, items.c.number, items.c.sent_at, *where)
    asked = asked.where(items.c.plan_id == plan_id, items.c.position > after, *_UNDER_WAY)
    rows = connection.execute(asked.order_by(items.c.position).limit(limit))
    return [Redriven(row[0], row[1], row[2], Spot(*row[4:]), row[3]) for row in rows]


def numbers(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, int]:
    """By delivery, under which number it died last, as far as that is recorded."""
    found: dict[bytes, int] = {}
    wanted = list(digests)
    for at in range(0, len(wanted), 5_000):
        asked = select(letters.c.digest, letters.c.number).where(letters.c.digest.in_(wanted[at : at + 5_000]))
        found |= {bytes(digest): number for digest, number in connection.execute(asked)}
    return found


def end(connection: Connection, plan_id: int, whys: Mapping[int, str], to: ItemState, at: int) -> None:
    """Note, by position, how deliveries ended that were sent, and why that is held."""
    by_why: dict[str, list[int]] = defaultdict(list)
    for position, why in whys.items():
        by_why[why].append(position)
    for why, positions in by_why.items():
        for some in in_parts(positions):
            sent = (*at_positions(plan_id, some), STATE == ItemState.SENT)
            connection.execute(update(items).where(*sent).values(state=to, why=why, ended_at=at))


def lost(connection: Connection, plan_id: int, why: str, at: int) -> None:
    """Note of what is about to be sent, and is no letter's, that nobody knows whether it was."""
    claimed = (items.c.plan_id == plan_id, items.c.state == ItemState.CLAIMED, items.c.letter_id.is_(None))
    connection.execute(update(items).where(*claimed).values(state=ItemState.UNKNOWN, why=why, ended_at=at))
