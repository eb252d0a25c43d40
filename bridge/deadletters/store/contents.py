"""Letters as a plan needs them: how each stands, whose delivery it is, and what is sent for it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, and_, case, literal_column, select

from bridge.deadletters.letters.letter import Status, unpacked
from bridge.deadletters.store import unknown_letters
from bridge.deadletters.store.among import among
from bridge.deadletters.store.schema import edits, kinds, letters, plans
from bridge.deadletters.store.spots import Spot
from bridge.deadletters.store.statuses import in_parts
from bridge.records.attempts import Attempts
from bridge.records.message import Headers
from bridge.records.origin import Origin

#: Of letters that bridges have written.
OURS: Final = "bridge"
#: Not as a parameter: a partial index is taken only where the statement itself says what it has.
_UNDER_WAY: Final = letters.c.status == literal_column(f"'{Status.REPLAYING}'")
_STATUSES: Final = {str(status): status for status in Status}


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
        again: by what it had been asked to run though it was done; empty: it was not.
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
    again: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether its delivery has a fate in the ledger, and goes to the replay topic."""
        return self.program == OURS


class OnItsWay(NamedTuple):
    """A letter that was sent back, and of which it is not known how it ends.

    Attributes:
        again: whether it runs though its delivery was done.
        unknown: whether its plan has given up waiting: the end is `unknown` there, and no proof has come since.
    """

    id: int
    delivery: Origin
    again: bool
    unknown: bool = False


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
        asked = _standings().where(among(letters.c.id, some)).order_by(letters.c.id)
        rows = connection.execute(asked.with_for_update(of=letters) if lock else asked).all()
        found |= {row.id: _standing(row) for row in rows}
    return found


def sent_by(connection: Connection) -> list[int]:
    """The plans that have letters on their way back."""
    # Plan by plan: asked for all at once, SQLite would look through the letters on their way, and sort them.
    under_way = select(letters.c.id).where(_UNDER_WAY, letters.c.plan_id == plans.c.id).exists()
    return list(connection.execute(select(plans.c.id).where(under_way).order_by(plans.c.id)).scalars())


def replaying(connection: Connection, plan_id: int, after: int, limit: int) -> list[OnItsWay]:
    """The next letters of a plan that are on their way back, behind an id."""
    # Nothing else of them: they are looked at again and again.
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.handler)
    columns = (letters.c.id, letters.c.again, unknown_letters.IS_UNKNOWN, *whose, kinds.c.consumer_group)
    asked = select(*columns).join(kinds, kinds.c.id == letters.c.kind_id)
    asked = asked.where(_UNDER_WAY, letters.c.plan_id == plan_id, letters.c.id > after)
    rows = connection.execute(asked.order_by(letters.c.id).limit(limit)).all()
    return [OnItsWay(id_, Origin(*whose), again is not None, bool(unknown)) for id_, again, unknown, *whose in rows]


def contents(connection: Connection, plan_id: int, ids: Sequence[int]) -> Iterator[Content]:
    """What a plan sends for these letters."""
    mended = and_(edits.c.letter_id == letters.c.id, edits.c.plan_id == plan_id)
    value = case((edits.c.id.is_not(None), edits.c.value), else_=letters.c.value)
    columns = [letters.c[name] for name in ("id", "key", "headers", "timestamp", "runs", "value_size")]
    counts = [letters.c[name] for name in Attempts._fields]
    asked = select(*columns, value.label("sent"), edits.c.id.label("edit"), *counts)
    asked = asked.select_from(letters.outerjoin(edits, mended))
    for some in in_parts(ids):
        yield from map(_content, connection.execute(asked.where(among(letters.c.id, some))).all())


def _standings() -> Select[Any]:
    own = ("id", "status", "failures", "plan_id", "value_size", "number", "key_digest", "again")
    spot = ("letter_topic", "letter_partition", "letter_offset")
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.handler)
    columns = (*(letters.c[name] for name in (*own, *spot)), kinds.c.origin, *whose, kinds.c.consumer_group)
    return select(*columns).join(kinds, kinds.c.id == letters.c.kind_id)


def _standing(row: Any) -> Standing:
    # By their places, not their names: of each letter of a plan this is asked.
    id_, status, failures, plan_id, size, number, key, again, topic, partition, offset, program, *whose = row
    spot, rest = Spot(topic, partition, offset), (key, again or "")
    return Standing(id_, _STATUSES[status], failures, plan_id, program, Origin(*whose), size, number, spot, *rest)


def _content(row: Any) -> Content:
    # By their places, as above.
    id_, key, headers, timestamp, runs, size, value, edit, *counts = row
    away = edit is None and value is None and size >= 0
    return Content(id_, key, value, unpacked(headers), timestamp, runs, Attempts(*counts), away)
