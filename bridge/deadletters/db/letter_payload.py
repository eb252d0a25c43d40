"""The payloads of letters: the content that a plan sends, the values that handlers are asked about, and the edits
that replace them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Select, and_, case, insert, literal_column, null, select

from bridge.deadletters.db import letter_rows
from bridge.deadletters.db.filter_sql import build_letter_conditions, is_one_of
from bridge.deadletters.db.letter_rows import split_into_batches
from bridge.deadletters.db.letter_transfer import fit_in_memory
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.db.sql import is_among
from bridge.deadletters.db.table_definitions import edits, items, kinds, letters, plans
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus, unpack_headers
from bridge.formats.delivery import Attempts, Headers
from bridge.formats.delivery_identity import Origin

#: The condition on letters that this project wrote.
BRIDGE_PROGRAM: Final = "bridge"
#: A literal: a partial index is not used for a parameter.
_IS_REPLAYING: Final = letters.c.status == literal_column(f"'{LetterStatus.REPLAYING}'")
_STATUSES: Final = {str(status): status for status in LetterStatus}


class LetterStanding(NamedTuple):
    """The state of a letter that decides whether and where it may be sent.

    Attributes:
        program: that wrote it: "bridge", or another's name.
        delivery: the delivery that died.
        value_size: of its own value, in bytes; -1: a tombstone.
        plan_id: the plan that has it, or had it last.
        number: of the delivery when it died; a replay has the next number.
        spot: the position of the letter's record.
        key: the digest of its key; `None`: it has none.
        again: the redrive that ran it though it was done; empty: none.
    """

    id: int
    status: LetterStatus
    failures: int
    plan_id: int | None
    program: str
    delivery: Origin
    value_size: int
    number: int
    spot: LogPosition
    key: int | None
    again: str = ""

    @property
    def is_ours(self) -> bool:
        """Return whether its delivery has a fate in the ledger, and goes to the replay topic."""
        return self.program == BRIDGE_PROGRAM


class ReplayingLetter(NamedTuple):
    """A letter that was replayed and has no outcome yet.

    Attributes:
        again: whether it runs though its delivery was done.
        unknown: whether its plan has given up waiting: the outcome is `unknown`, without proof since.
    """

    id: int
    delivery: Origin
    again: bool
    unknown: bool = False


class LetterContent(NamedTuple):
    """The content that is sent for a letter.

    Attributes:
        value: the letter's, or the plan's edit; `None` is a tombstone, unless `away`.
        away: whether the value is in Kafka alone, because it is too large for the database.
        trace: the context of the delivery's last hop; empty: none.
    """

    id: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    runs: int
    attempts: Attempts
    away: bool
    trace: str = ""


def read_letter_standings(
    connection: Connection, ids: Iterable[int], *, lock: bool = False
) -> dict[int, LetterStanding]:
    """Return the standings of letters that exist, by id.

    Parameters:
        lock: whether they are locked until the transaction ends.
    """
    found: dict[int, LetterStanding] = {}
    for some in split_into_batches(sorted(set(ids))):
        query = _select_standings().where(is_among(letters.c.id, some)).order_by(letters.c.id)
        rows = connection.execute(query.with_for_update(of=letters) if lock else query).all()
        found |= {row.id: _build_standing(row) for row in rows}
    return found


def find_groups_of_bridges(connection: Connection) -> list[str]:
    """Return the consumer groups whose bridges had dead letters."""
    query = select(kinds.c.consumer_group).where(kinds.c.origin == BRIDGE_PROGRAM).distinct()
    return sorted(connection.execute(query).scalars())


def find_replaying_plans(connection: Connection) -> list[int]:
    """Return the plans that have replaying letters."""
    # Plan by plan: in one query SQLite would read and sort all replaying letters.
    under_way = select(letters.c.id).where(_IS_REPLAYING, letters.c.plan_id == plans.c.id).exists()
    return list(connection.execute(select(plans.c.id).where(under_way).order_by(plans.c.id)).scalars())


def read_replaying_letters(connection: Connection, plan_id: int, after: int, limit: int) -> list[ReplayingLetter]:
    """Return the next replaying letters of a plan after an id."""
    # Few columns, because they are polled.
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.handler)
    columns = (letters.c.id, letters.c.again, letter_rows.IS_UNKNOWN, *whose, kinds.c.consumer_group)
    query = select(*columns).join(kinds, kinds.c.id == letters.c.kind_id)
    query = query.where(_IS_REPLAYING, letters.c.plan_id == plan_id, letters.c.id > after)
    rows = connection.execute(query.order_by(letters.c.id).limit(limit)).all()
    return [
        ReplayingLetter(id_, Origin(*whose), again is not None, bool(unknown)) for id_, again, unknown, *whose in rows
    ]


def read_letter_contents(connection: Connection, plan_id: int, ids: Sequence[int]) -> Iterator[LetterContent]:
    """Yield the contents that a plan sends for these letters."""
    mended = and_(edits.c.letter_id == letters.c.id, edits.c.plan_id == plan_id)
    value = case((edits.c.id.is_not(None), edits.c.value), else_=letters.c.value)
    columns = [letters.c[name] for name in ("id", "key", "headers", "timestamp", "runs", "value_size")]
    counts = [letters.c[name] for name in Attempts._fields]
    query = select(*columns, value.label("sent"), edits.c.id.label("edit"), letters.c.trace, *counts)
    query = query.select_from(letters.outerjoin(edits, mended))
    for some in split_into_batches(ids):
        yield from map(_build_content, connection.execute(query.where(is_among(letters.c.id, some))).all())


def _select_standings() -> Select[Any]:
    own = ("id", "status", "failures", "plan_id", "value_size", "number", "key_digest", "again")
    spot = ("letter_topic", "letter_partition", "letter_offset")
    whose = (kinds.c.topic, letters.c.topic_id, letters.c.partition, letters.c.offset, kinds.c.handler)
    columns = (*(letters.c[name] for name in (*own, *spot)), kinds.c.origin, *whose, kinds.c.consumer_group)
    return select(*columns).join(kinds, kinds.c.id == letters.c.kind_id)


def _build_standing(row: Any) -> LetterStanding:
    # By position, not by name: this runs for each letter of a plan.
    id_, status, failures, plan_id, size, number, key, again, topic, partition, offset, program, *whose = row
    spot, rest = LogPosition(topic, partition, offset), (key, again or "")
    return LetterStanding(id_, _STATUSES[status], failures, plan_id, program, Origin(*whose), size, number, spot, *rest)


def _build_content(row: Any) -> LetterContent:
    # By position, as above.
    id_, key, headers, timestamp, runs, size, value, edit, trace, *counts = row
    away = edit is None and value is None and size >= 0
    told = (unpack_headers(headers), timestamp, runs, Attempts(*counts), away, trace or "")
    return LetterContent(id_, key, value, *told)


class LetterValue(NamedTuple):
    """A letter's value, and the position of its record.

    Attributes:
        size: in bytes; -1: a tombstone.
        value: `None` for a tombstone, or if it is too large for the database.
        headers: of its record.
        encoded: the value as in Kafka, if `value` is the JSON of it; else `None`.
    """

    id: int
    handler: str
    size: int
    value: bytes | None
    topic: str
    partition: int
    offset: int
    headers: Headers = ()
    encoded: bytes | None = None

    @property
    def in_kafka(self) -> bytes | None:
        """Return the value byte for byte."""
        return self.value if self.encoded is None else self.encoded

    @property
    def is_kept(self) -> bool:
        """Return whether the database has the value."""
        return self.value is not None or self.size < 0


_RECORD_COLUMNS = [letters.c[name] for name in ("letter_topic", "letter_partition", "letter_offset")]
_VALUE_COLUMNS = (
    letters.c.id,
    kinds.c.handler,
    letters.c.value_size,
    letters.c.value,
    *_RECORD_COLUMNS,
    letters.c.headers,
)


def read_letter_value(connection: Connection, id_: int) -> LetterValue | None:
    """Return a letter's value; `None` if there is no such letter."""
    found = select(*_VALUE_COLUMNS).join(kinds, kinds.c.id == letters.c.kind_id).where(letters.c.id == id_)
    row = connection.execute(found).one_or_none()
    return None if row is None else _build_value(*row)


def read_matching_values(
    connection: Connection, filter_: LetterFilter, after: int, limit: int, among: Sequence[int] | None = None
) -> list[LetterValue]:
    """Return the values of the next letters of a filter, by id.

    Parameters:
        among: as in `filter_sql.build_letter_conditions`.
    """
    # Not by the ids of all matches: they would be searched again for each page.
    next_ = select(letters.c.id).join(kinds, kinds.c.id == letters.c.kind_id)
    next_ = next_.where(letters.c.id > after, *build_letter_conditions(filter_, among=among))
    next_ = next_.order_by(letters.c.id).limit(limit)
    ids = fit_in_memory(connection, [*connection.execute(next_).scalars()])
    return [*_read_values(connection, ids).values()]


def read_plan_values(connection: Connection, plan_id: int, after: int, limit: int) -> list[tuple[int, LetterValue]]:
    """Return the next letters of a plan, each with its position."""
    next_ = (
        select(letters.c.id, items.c.position)
        .join(letters, letters.c.id == items.c.letter_id)
        .where(items.c.plan_id == plan_id, items.c.position > after, items.c.state == "waiting")
        .order_by(items.c.position)
        .limit(limit)
    )
    positions = {row.id: row.position for row in connection.execute(next_)}
    ids = fit_in_memory(connection, [*positions])
    found = _read_values(connection, ids)
    return [(positions[id_], found[id_]) for id_ in ids if id_ in found]


def read_edited_values(
    connection: Connection, plan_id: int, limit: int, after: int = 0
) -> list[tuple[LetterValue, bytes | None]]:
    """Return the next letters of a plan that go back with another value, by id, each with that value."""
    next_ = select(letters.c.id).join(edits, edits.c.letter_id == letters.c.id).order_by(letters.c.id).limit(limit)
    next_ = next_.where(edits.c.plan_id == plan_id, letters.c.id > after)
    ids = fit_in_memory(connection, [*connection.execute(next_).scalars()])
    new = select(edits.c.letter_id, edits.c.value).where(edits.c.plan_id == plan_id, edits.c.letter_id.in_(ids))
    made = {id_: None if value is None else bytes(value) for id_, value in connection.execute(new)}
    return [(letter, made[id_]) for id_, letter in _read_values(connection, ids).items()]


def has_edits_after(connection: Connection, plan_id: int, after: int) -> bool:
    """Return whether a plan has further edited letters after a letter."""
    query = select(edits.c.letter_id).join(letters, letters.c.id == edits.c.letter_id).limit(1)
    query = query.where(edits.c.plan_id == plan_id, edits.c.letter_id > after)
    return connection.execute(query).first() is not None


def _read_values(connection: Connection, ids: Sequence[int]) -> dict[int, LetterValue]:
    query = select(*_VALUE_COLUMNS).join(kinds, kinds.c.id == letters.c.kind_id).where(letters.c.id.in_(ids))
    return {row.id: _build_value(*row) for row in connection.execute(query.order_by(letters.c.id))}


def _build_value(id_: int, handler: str, size: int, value: bytes | None, *rest: Any) -> LetterValue:
    topic, partition, offset, headers = rest
    # PostgreSQL's driver may return a memoryview.
    own = None if value is None else bytes(value)
    return LetterValue(id_, handler, size, own, topic, partition, offset, unpack_headers(bytes(headers)))


EditMethod = Literal["edit", "patch", "upgrade"]

#: States of an item whose edit was not sent: another plan was first, Kafka refused it, or the plan was not applied.
_NEVER_SENT: Final = (PlanItemState.WAITING, PlanItemState.SKIPPED, PlanItemState.REFUSED)


class PlanEdit(NamedTuple):
    """A value that a plan sends in the place of a letter's own.

    Attributes:
        at: ms since the epoch.
        value: `None` is a tombstone.
    """

    letter_id: int
    plan_id: int
    at: int
    by: str
    how: EditMethod
    value: bytes | None


_EDIT_COLUMNS = [edits.c[name] for name in PlanEdit._fields]


def add_edits(connection: Connection, made: Iterable[PlanEdit]) -> None:
    """Store the values that plans are to send; each plan has at most one for a letter."""
    if rows := [edit._asdict() for edit in made]:
        connection.execute(insert(edits), rows)


def read_letter_edits(connection: Connection, letter_id: int) -> list[PlanEdit]:
    """Return the values that were sent in a letter's place, oldest first; also by plans of a database that it was
    imported from.
    """
    of_plan = (items.c.plan_id == edits.c.plan_id, items.c.letter_id == edits.c.letter_id, items.c.place.is_(None))
    never = select(items.c.position).where(*of_plan, items.c.state.in_(_NEVER_SENT)).exists()
    query = select(*_EDIT_COLUMNS).where(edits.c.letter_id == letter_id, ~never).order_by(edits.c.id)
    return [PlanEdit(*row) for row in connection.execute(query)]


class QuotableContent(NamedTuple):
    """The content of a letter that its error texts may quote.

    Attributes:
        topic, partition, timestamp: of the source record.
        is_whole: whether `value` is complete: not if it is too large.
    """

    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None
    is_whole: bool
    partition: int = 0
    timestamp: int | None = None


def read_quotable_contents(connection: Connection, ids: Collection[int], largest: int) -> dict[int, QuotableContent]:
    """Return the contents of these letters by id.

    Parameters:
        largest: bytes; a larger value is not read.
    """
    value = case((letters.c.value_size <= largest, letters.c.value), else_=null()).label("value")
    own = (letters.c[name] for name in ("id", "key", "headers", "value_size", "partition", "timestamp"))
    found = select(*own, kinds.c.topic, value)
    found = found.join(kinds, kinds.c.id == letters.c.kind_id).where(is_one_of(letters.c.id, list(ids)))
    return {row.id: _build_quotable_content(row) for row in connection.execute(found)}


def _build_quotable_content(row: Any) -> QuotableContent:
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    is_whole = value is not None or row.value_size < 0
    headers = unpack_headers(bytes(row.headers))
    return QuotableContent(row.topic, key, headers, value, is_whole, row.partition, row.timestamp)
