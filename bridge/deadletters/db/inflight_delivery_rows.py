"""Deliveries in flight without a letter of their own: those of redrives, those to other handlers, and those that other
plans have claimed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, func, literal_column, select, update

from bridge.deadletters.db.letter_rows import split_into_batches
from bridge.deadletters.db.plan_item_rows import LogPosition, SentPosition, end_items
from bridge.deadletters.db.table_definitions import items, kinds, letters, plans
from bridge.deadletters.model.bulk_plan import UNDER_WAY, PlanItemState, PlanKind
from bridge.deadletters.model.stored_letter import LetterIdentity
from bridge.formats.delivery_identity import Origin

#: Literals: the partial index of items in flight is not used for parameters.
_IS_UNDER_WAY: Final = items.c.state.in_([literal_column(f"'{state}'") for state in UNDER_WAY])

#: The advisory lock of claims in PostgreSQL: any number that no other lock has.
_CLAIMS_LOCK: Final = 7_303_014_711


class DeliveryElsewhere(NamedTuple):
    """A delivery that another plan has in flight.

    Attributes:
        number: of the delivery when it was sent; `None`: it is about to be sent.
    """

    plan_id: int
    number: int | None

    def before(self, died: int) -> bool:
        """Return whether it was sent before the delivery died with this number: then it is not in flight (pure)."""
        return self.number is not None and self.number <= died


def lock_claims(connection: Connection) -> None:
    """Keep other plans from claiming until the transaction ends: two could claim the same delivery or lane."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CLAIMS_LOCK)))


def find_deliveries_elsewhere(
    connection: Connection, plan_id: int, places: Iterable[str]
) -> dict[str, DeliveryElsewhere]:
    """Return, by place, the deliveries that other plans have in flight.

    Parameters:
        places: deliveries (`orders-3-1234:orders.handlers.charge`).
    """
    found: dict[str, DeliveryElsewhere] = {}
    for some in split_into_batches(sorted(set(places))):
        query = select(items.c.place, items.c.plan_id, items.c.number)
        query = query.where(items.c.place.in_(some), _IS_UNDER_WAY, items.c.plan_id != plan_id)
        found |= {row.place: DeliveryElsewhere(row.plan_id, row.number) for row in connection.execute(query)}
    return found


class SentRedrive(NamedTuple):
    """A redriven delivery in flight.

    Attributes:
        place: `orders-3-1234:orders.handlers.charge`.
        number: of the delivery when it was sent.
        spot: the position of its record.
        at: when it was sent, ms since the epoch.
    """

    position: int
    place: str
    number: int
    spot: LogPosition
    at: int


#: A literal: the index of states is not used for a parameter.
_REDRIVE_UNDER_WAY = (items.c.state == literal_column(f"'{PlanItemState.SENT}'"), items.c.letter_id.is_(None))


def find_redrives_under_way(connection: Connection) -> list[int]:
    """Return the redrives with deliveries in flight."""
    sent = select(items.c.plan_id).where(items.c.plan_id == plans.c.id, *_REDRIVE_UNDER_WAY).exists()
    query = select(plans.c.id).where(plans.c.what == PlanKind.REDRIVE, sent).order_by(plans.c.id)
    return list(connection.execute(query).scalars())


def read_sent_redrives(connection: Connection, plan_id: int, after: int, limit: int) -> list[SentRedrive]:
    """Return the deliveries of a redrive in flight, after a position."""
    where = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset)
    query = select(items.c.position, items.c.place, items.c.number, items.c.sent_at, *where)
    query = query.where(items.c.plan_id == plan_id, items.c.position > after, *_REDRIVE_UNDER_WAY)
    rows = connection.execute(query.order_by(items.c.position).limit(limit))
    return [SentRedrive(row[0], row[1], row[2], LogPosition(*row[4:]), row[3]) for row in rows]


def read_death_numbers(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, int]:
    """Return, by delivery, its number in the last recorded death."""
    found: dict[bytes, int] = {}
    for some in split_into_batches(list(digests)):
        query = select(letters.c.digest, letters.c.number).where(letters.c.digest.in_(some))
        found |= {bytes(digest): number for digest, number in connection.execute(query)}
    return found


def note_lost_redrives(connection: Connection, plan_id: int, why: str, at: int) -> None:
    """Note that it is unknown whether claimed deliveries without a letter were sent."""
    claimed = (items.c.plan_id == plan_id, items.c.state == PlanItemState.CLAIMED, items.c.letter_id.is_(None))
    connection.execute(update(items).where(*claimed).values(state=PlanItemState.UNKNOWN, why=why, ended_at=at))


class OtherDelivery(NamedTuple):
    """A sent delivery that is no letter's own.

    Attributes:
        number: of the delivery when it was sent.
    """

    plan_id: int
    position: int
    delivery: Origin
    number: int
    where: SentPosition


def read_other_deliveries(connection: Connection, plan_id: int, after: int, limit: int) -> list[OtherDelivery]:
    """Return the next deliveries of a plan in flight that are no letter's own, after a position."""
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.consumer_group)
    where = (items.c.sent_topic, items.c.sent_partition, items.c.sent_offset, items.c.sent_at)
    query = select(items.c.plan_id, items.c.position, items.c.place, items.c.number, *whose, *where)
    query = query.join(letters, letters.c.id == items.c.letter_id).join(kinds, kinds.c.id == letters.c.kind_id)
    under_way = (items.c.state == PlanItemState.SENT, items.c.place.is_not(None), items.c.position > after)
    query = query.where(items.c.plan_id == plan_id, *under_way)
    return [_build_other_delivery(row) for row in connection.execute(query.order_by(items.c.position).limit(limit))]


def find_dead_deliveries(connection: Connection, found: Sequence[OtherDelivery]) -> list[OtherDelivery]:
    """Return those of these deliveries that have a letter of their own by now."""
    digests = {LetterIdentity.for_delivery(delivery.delivery).digest: delivery for delivery in found}
    dead: list[OtherDelivery] = []
    for some in split_into_batches(list(digests)):
        query = select(letters.c.digest, letters.c.number).where(letters.c.digest.in_(some))
        rows = ((digests[bytes(row.digest)], row.number) for row in connection.execute(query))
        dead += [each for each, number in rows if number >= each.number]
    return dead


def end_other_deliveries(
    connection: Connection, found: Sequence[OtherDelivery], to: PlanItemState, at: int, why: str = ""
) -> None:
    """Note how deliveries ended that are no letter's own."""
    by_plan: dict[int, list[int]] = defaultdict(list)
    for delivery in found:
        by_plan[delivery.plan_id].append(delivery.position)
    for plan_id, positions in by_plan.items():
        end_items(connection, plan_id, dict.fromkeys(positions, why), to, at, UNDER_WAY)


def _build_other_delivery(row: Any) -> OtherDelivery:
    handler = row.place.partition(":")[2]
    delivery = Origin(row.topic, row.topic_id, row.partition, row.offset, handler, row.consumer_group)
    spot = LogPosition(row.sent_topic, row.sent_partition, row.sent_offset)
    return OtherDelivery(row.plan_id, row.position, delivery, row.number, SentPosition(spot, row.sent_at))
