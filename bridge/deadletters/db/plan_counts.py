"""The figures of a plan: by handler and reason before its approval, by wave and outcome after it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, func, select

from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.letter_payload import BRIDGE_PROGRAM
from bridge.deadletters.db.letter_rows import split_into_batches
from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.deadletters.db.table_definitions import edits, items, kinds, letters
from bridge.deadletters.model.bulk_plan import PlanItemState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import ENDED, LetterStatus


class DeadDelivery(NamedTuple):
    """The letter of a delivery.

    Attributes:
        failures: how often it has died.
        number: of the delivery when it died last.
        again: whether it ran then though it was done.
    """

    id: int
    status: LetterStatus
    failures: int
    number: int
    again: bool


class LetterHeap(NamedTuple):
    """The letters of a plan with the same program, failures, topic and handler.

    Attributes:
        program: that wrote them: "bridge", or another's name.
        failures: how often each has died.
        letters: how many they are.
        largest: bytes of the largest value.
    """

    topic: str
    handler: str
    reason: str
    program: str
    group: str
    failures: int
    letters: int
    largest: int

    @property
    def is_ours(self) -> bool:
        """Return whether this project wrote them."""
        return self.program == BRIDGE_PROGRAM


def count_letter_heaps(connection: Connection, plan_id: int) -> list[LetterHeap]:
    """Return the heaps of all letters of a plan."""
    common = [kinds.c[name] for name in ("topic", "handler", "reason", "origin", "consumer_group")]
    counted = (func.count(), func.max(letters.c.value_size))
    query = _select_of_plan(plan_id, *common, letters.c.failures, *counted).group_by(*common, letters.c.failures)
    return [LetterHeap(*row) for row in connection.execute(query.order_by(*common, letters.c.failures))]


def count_letters_by_handler(connection: Connection, plan_id: int) -> dict[str, dict[str, int]]:
    """Return how many letters a plan has, by handler and reason."""
    found: dict[str, dict[str, int]] = {}
    for heap in count_letter_heaps(connection, plan_id):
        reasons = found.setdefault(heap.handler, {})
        reasons[heap.reason] = reasons.get(heap.reason, 0) + heap.letters
    return found


def count_larger_letters(connection: Connection, plan_id: int, topic: str, size: int) -> int:
    """Return how many letters of a source topic have a larger value."""
    query = _select_of_plan(plan_id, func.count()).where(kinds.c.topic == topic, letters.c.value_size > size)
    return int(connection.execute(query).scalar_one())


def find_values_away(connection: Connection, plan_id: int) -> list[LogPosition]:
    """Return the positions of the letters whose value is in Kafka alone and not edited by the plan."""
    where = [letters.c[name] for name in ("letter_topic", "letter_partition", "letter_offset")]
    mended = select(edits.c.letter_id).where(edits.c.plan_id == plan_id)
    query = _select_of_plan(plan_id, *where).where(letters.c.value.is_(None), letters.c.value_size >= 0)
    return [LogPosition(*row) for row in connection.execute(query.where(letters.c.id.not_in(mended)))]


def count_letters_of_nowhere(connection: Connection, plan_id: int) -> dict[str, int]:
    """Return, by dead-letter topic, how many letters of other programs do not name their source record."""
    query = _select_of_plan(plan_id, kinds.c.topic, func.count()).group_by(kinds.c.topic)
    rows = connection.execute(query.where(kinds.c.origin != BRIDGE_PROGRAM, kinds.c.topic == letters.c.letter_topic))
    return {row[0]: row[1] for row in rows}


def count_replaying_letters(connection: Connection, filter_: LetterFilter, among: Sequence[int] | None = None) -> int:
    """Return how many letters of a filter are replaying already.

    Parameters:
        among: as in `filter_sql.build_letter_conditions`.
    """
    these = select_matching_letters(filter_, among).where(letters.c.status == LetterStatus.REPLAYING).subquery()
    return int(connection.execute(select(func.count()).select_from(these)).scalar_one())


def find_ended_letters(connection: Connection, ids: Sequence[int]) -> list[tuple[int, LetterStatus]]:
    """Return those of these letters that have ended, with their status."""
    query = select(letters.c.id, letters.c.status).where(letters.c.status.in_(ENDED)).order_by(letters.c.id)
    found = (connection.execute(query.where(letters.c.id.in_(some))) for some in split_into_batches(ids))
    return [(row.id, LetterStatus(row.status)) for rows in found for row in rows]


def find_letters_by_digest(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, DeadDelivery]:
    """Return the letters of these deliveries by digest."""
    columns = (letters.c.id, letters.c.status, letters.c.failures, letters.c.number, letters.c.again)
    rows = connection.execute(select(letters.c.digest, *columns).where(letters.c.digest.in_([*digests])))
    return {
        bytes(row.digest): DeadDelivery(
            row.id, LetterStatus(row.status), row.failures, row.number, row.again is not None
        )
        for row in rows
    }


def _select_of_plan(plan_id: int, *columns: Any) -> Select[Any]:
    joined = items.join(letters, letters.c.id == items.c.letter_id).join(kinds, kinds.c.id == letters.c.kind_id)
    return select(*columns).select_from(joined).where(items.c.plan_id == plan_id, items.c.place.is_(None))


class WaveState(NamedTuple):
    """The state of a wave of a plan.

    Attributes:
        outcomes: how many of its deliveries have which state.
        sent_at: when the first of it was sent, ms since the epoch, as all times here.
        ended_at: when the latest outcome was known.
    """

    wave: int
    outcomes: dict[str, int]
    sent_at: int | None
    ended_at: int | None


def read_wave_states(connection: Connection, plan_id: int) -> list[WaveState]:
    """Return a plan's waves, in their order."""
    times = (func.min(items.c.sent_at), func.max(items.c.ended_at))
    query = select(items.c.wave, items.c.state, func.count(), *times).where(items.c.plan_id == plan_id)
    found: dict[int, list[Any]] = defaultdict(list)
    for row in connection.execute(query.group_by(items.c.wave, items.c.state).order_by(items.c.wave)):
        found[row[0]].append(row)
    return [
        WaveState(
            wave,
            {row[1]: row[2] for row in rows},
            min((row[3] for row in rows if row[3] is not None), default=None),
            max((row[4] for row in rows if row[4] is not None), default=None),
        )
        for wave, rows in found.items()
    ]


def read_dead_letters(connection: Connection, plan_id: int, limit: int) -> Sequence[Row[Any]]:
    """Return the latest letters of a plan that died again."""
    its = [kinds.c[name] for name in ("topic", "handler", "error_class", "version")]
    has = [letters.c[name] for name in ("id", "partition", "offset", "key", "error_message")]
    how = [items.c[name] for name in ("wave", "sent_at", "ended_at")]
    query = select(*has, *its, *how).join(letters, letters.c.id == items.c.letter_id)
    query = query.join(kinds, kinds.c.id == letters.c.kind_id)
    where = (items.c.plan_id == plan_id, items.c.state == PlanItemState.DEAD)
    return connection.execute(query.where(*where).order_by(items.c.position.desc()).limit(limit)).all()


def count_ends(
    connection: Connection, plan_id: int, states: Sequence[PlanItemState], limit: int
) -> list[tuple[str, str, int]]:
    """Return state, reason and count of the ended deliveries of a plan, the largest count first."""
    count = func.count()
    query = select(items.c.state, items.c.why, count).where(items.c.plan_id == plan_id, items.c.state.in_(states))
    query = query.group_by(items.c.state, items.c.why).order_by(count.desc(), items.c.why).limit(limit)
    return [(state, why, number) for state, why, number in connection.execute(query)]


def read_item_states(
    connection: Connection, plan_id: int, states: Sequence[PlanItemState], after: int, limit: int
) -> Sequence[Row[Any]]:
    """Return the deliveries of a plan after a position, in their order, with their states.

    Parameters:
        states: empty: all.
    """
    names = ("position", "letter_id", "place", "wave", "state", "why", "sent_at", "ended_at")
    query = select(*(items.c[name] for name in names)).where(items.c.plan_id == plan_id, items.c.position > after)
    if states:
        query = query.where(items.c.state.in_(states))
    return connection.execute(query.order_by(items.c.position).limit(limit)).all()
