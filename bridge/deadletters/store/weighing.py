"""What a plan that was frozen is about: its letters counted, before it is approved."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import ENDED, Status
from bridge.deadletters.store.contents import OURS
from bridge.deadletters.store.matching import matching
from bridge.deadletters.store.schema import edits, items, kinds, letters
from bridge.deadletters.store.spots import Spot
from bridge.deadletters.store.statuses import in_parts


class Died(NamedTuple):
    """The letter that a delivery has.

    Attributes:
        failures: how often it has died.
        number: under which it died last.
        again: whether it ran, then, though it was done.
    """

    id: int
    status: Status
    failures: int
    number: int
    again: bool


class Heap(NamedTuple):
    """Letters of a plan that have this in common.

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
        """Whether bridges have written them."""
        return self.program == OURS


def heaps(connection: Connection, plan_id: int) -> list[Heap]:
    """All letters of a plan."""
    common = [kinds.c[name] for name in ("topic", "handler", "reason", "origin", "consumer_group")]
    counted = (func.count(), func.max(letters.c.value_size))
    asked = _of_plan(plan_id, *common, letters.c.failures, *counted).group_by(*common, letters.c.failures)
    return [Heap(*row) for row in connection.execute(asked.order_by(*common, letters.c.failures))]


def by_handler(connection: Connection, plan_id: int) -> dict[str, dict[str, int]]:
    """How many letters a plan has, by handler and reason."""
    found: dict[str, dict[str, int]] = {}
    for heap in heaps(connection, plan_id):
        reasons = found.setdefault(heap.handler, {})
        reasons[heap.reason] = reasons.get(heap.reason, 0) + heap.letters
    return found


def larger(connection: Connection, plan_id: int, topic: str, size: int) -> int:
    """How many letters of a source topic have a value of more bytes."""
    asked = _of_plan(plan_id, func.count()).where(kinds.c.topic == topic, letters.c.value_size > size)
    return int(connection.execute(asked).scalar_one())


def away(connection: Connection, plan_id: int) -> list[Spot]:
    """Where those letters lie whose value is in Kafka alone, and for which the plan has no other."""
    where = [letters.c[name] for name in ("letter_topic", "letter_partition", "letter_offset")]
    mended = select(edits.c.letter_id).where(edits.c.plan_id == plan_id)
    asked = _of_plan(plan_id, *where).where(letters.c.value.is_(None), letters.c.value_size >= 0)
    return [Spot(*row) for row in connection.execute(asked.where(letters.c.id.not_in(mended)))]


def of_nowhere(connection: Connection, plan_id: int) -> dict[str, int]:
    """By dead-letter topic, how many letters of other programs do not say of which record they are."""
    asked = _of_plan(plan_id, kinds.c.topic, func.count()).group_by(kinds.c.topic)
    rows = connection.execute(asked.where(kinds.c.origin != OURS, kinds.c.topic == letters.c.letter_topic))
    return {row[0]: row[1] for row in rows}


def replaying(connection: Connection, asked: Filter) -> int:
    """How many of the letters that were asked for are on their way already."""
    these = matching(asked).where(letters.c.status == Status.REPLAYING).subquery()
    return int(connection.execute(select(func.count()).select_from(these)).scalar_one())


def ended(connection: Connection, ids: Sequence[int]) -> list[tuple[int, Status]]:
    """Those of these letters that have ended, with how they stand."""
    asked = select(letters.c.id, letters.c.status).where(letters.c.status.in_(ENDED)).order_by(letters.c.id)
    found = (connection.execute(asked.where(letters.c.id.in_(some))) for some in in_parts(ids))
    return [(row.id, Status(row.status)) for rows in found for row in rows]


def by_digest(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, Died]:
    """The letters of these deliveries."""
    columns = (letters.c.id, letters.c.status, letters.c.failures, letters.c.number, letters.c.again)
    rows = connection.execute(select(letters.c.digest, *columns).where(letters.c.digest.in_([*digests])))
    return {
        bytes(row.digest): Died(row.id, Status(row.status), row.failures, row.number, row.again is not None)
        for row in rows
    }


def _of_plan(plan_id: int, *columns: Any) -> Select[Any]:
    joined = items.join(letters, letters.c.id == items.c.letter_id).join(kinds, kinds.c.id == letters.c.kind_id)
    return select(*columns).select_from(joined).where(items.c.plan_id == plan_id, items.c.place.is_(None))
