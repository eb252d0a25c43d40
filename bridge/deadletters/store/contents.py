"""Letters as a plan needs them: how each stands, whose delivery it is, and what is sent for it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, and_, case, literal_column, select, tuple_

from bridge.deadletters.letters.letter import Status, unpacked
from bridge.deadletters.store.items import Spot
from bridge.deadletters.store.schema import edits, kinds, letters
from bridge.deadletters.store.statuses import in_parts
from bridge.records.attempts import Attempts
from bridge.records.message import Headers
from bridge.records.origin import Origin

#: Of letters that bridges have written.
OURS: Final = "bridge"


class Standing(NamedTuple):
    """A letter, as far as it is asked whether it may be sent, and to where.

    Attributes:
        program: that wrote it: "bridge", or another's name.
        delivery: whose it is.
        value_size: of its own value, in bytes; -1: a tombstone.
        plan_id: the plan that has it, or had it last.
        number: of the delivery that died; what is sent back has the next.
        spot: where the letter lies.
        key: the digest of its key; `None`: it has none.
    """

    id: int
    status: Status
    failures: int
    plan_id: int | None
    program: str
    delivery: Origin
    value_size: int
    number: int
    spot: Spot
    key: int | None

    @property
    def is_ours(self) -> bool:
        """Whether its delivery has a fate in the ledger, and goes to the replay topic."""
        return self.program == OURS


class Content(NamedTuple):
    """What is sent for a letter.

    Attributes:
        value: that of the letter, or the one that a plan has for it; `None` is a tombstone, unless `away`.
        away: whether the value lies in Kafka alone, as it is too large for the database.
    """

    id: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    runs: int
    attempts: Attempts
    away: bool


def standings(connection: Connection, ids: Iterable[int], *, lock: bool = False) -> dict[int, Standing]:
    """How letters stand; those that are no more are left out.

    Parameters:
        lock: they are nobody else's to change until the transaction ends.
    """
    found: dict[int, Standing] = {}
    for some in in_parts(sorted(set(ids))):
        asked = _standings().where(letters.c.id.in_(some)).order_by(letters.c.id)
        rows = connection.execute(asked.with_for_update(of=letters) if lock else asked)
        found |= {row.id: _standing(row) for row in rows}
    return found


def replaying(connection: Connection, after: tuple[int, int], limit: int, plan_id: int | None = None) -> list[Standing]:
    """The next letters that are on their way back, behind a plan's and a letter's id, in their order.

    Parameters:
        plan_id: those of this plan alone.
    """
    # Not as a parameter: a partial index is taken only where the statement itself says what it has.
    under_way = letters.c.status == literal_column(f"'{Status.REPLAYING}'")
    asked = _standings().where(under_way, tuple_(letters.c.plan_id, letters.c.id) > tuple_(*after))
    if plan_id is not None:
        asked = asked.where(letters.c.plan_id == plan_id)
    rows = connection.execute(asked.order_by(letters.c.plan_id, letters.c.id).limit(limit))
    return [_standing(row) for row in rows]


def contents(connection: Connection, plan_id: int, ids: Sequence[int]) -> Iterator[Content]:
    """What a plan sends for these letters."""
    mended = and_(edits.c.letter_id == letters.c.id, edits.c.plan_id == plan_id)
    value = case((edits.c.id.is_not(None), edits.c.value), else_=letters.c.value)
    columns = [letters.c[name] for name in ("id", "key", "headers", "timestamp", "runs", "value_size")]
    counts = [letters.c[name] for name in Attempts._fields]
    asked = select(*columns, *counts, value.label("sent"), edits.c.id.label("edit"))
    asked = asked.select_from(letters.outerjoin(edits, mended))
    for some in in_parts(ids):
        yield from map(_content, connection.execute(asked.where(letters.c.id.in_(some))))


def _standings() -> Select[Any]:
    own = (
        "id",
        "status",
        "failures",
        "plan_id",
        "topic_id",
        "partition",
        "offset",
        "value_size",
        "number",
        "key_digest",
    )
    where = ("letter_topic", "letter_partition", "letter_offset")
    common = ("origin", "topic", "handler", "consumer_group")
    columns = [*(letters.c[name] for name in (*own, *where)), *(kinds.c[name] for name in common)]
    return select(*columns).join(kinds, kinds.c.id == letters.c.kind_id)


def _standing(row: Any) -> Standing:
    delivery = Origin(row.topic, row.topic_id, row.partition, row.offset, row.handler, row.consumer_group)
    spot = Spot(row.letter_topic, row.letter_partition, row.letter_offset)
    status, whole = Status(row.status), (row.value_size, row.number, spot, row.key_digest)
    return Standing(row.id, status, row.failures, row.plan_id, row.origin, delivery, *whole)


def _content(row: Any) -> Content:
    attempts = Attempts(row.failed, row.lost, row.postponed, row.replayed)
    away = row.edit is None and row.sent is None and row.value_size >= 0
    return Content(row.id, row.key, row.sent, unpacked(row.headers), row.timestamp, row.runs, attempts, away)
