"""Plans: added, read, leased by the process that applies them, stopped and ended."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Select, and_, exists, func, insert, literal_column, or_, select, update

from bridge.deadletters.db import plan_item_table, schema, sql
from bridge.deadletters.db.schema import items, letters, plans
from bridge.deadletters.model.bulk_plan import (
    UNDER_WAY,
    BulkPlan,
    PlanCounts,
    PlanItemState,
    PlanKind,
    PlanOptions,
    PlanState,
)
from bridge.deadletters.model.stored_letter import LetterStatus

#: Ms for which a process that applies a plan has it for itself. It shows more often that it lives; what it publishes
#: it begins early in this time, so that Kafka has answered or given it up before another may look for it.
PLAN_LEASE_MS: Final = 30_000
#: The states of a plan that can be done, or gone on with.
TO_DO: Final = (PlanState.PLANNED, PlanState.APPLYING, PlanState.STOPPED, PlanState.FAILED)
#: Those of a plan of which nothing more is begun, until somebody goes on with it.
ENDED_EARLY: Final = (PlanState.STOPPED, PlanState.FAILED)
#: Of plans that are over, by their ids: their state, and when they ended; and how many of their deliveries ended how.
OverPlans = dict[int, tuple[tuple[str, int | None], Mapping[str, int]]]


def add_plan(
    connection: Connection, what: PlanKind, by: str, why: str, asked: Mapping[str, Any], options: PlanOptions
) -> tuple[int, int]:
    """A new plan without letters: its id, and when it was made."""
    at = sql.read_clock(connection)
    row = {"what": what, "state": PlanState.PLANNED, "by": by, "at": at, "why": why}
    texts = {"asked": json.dumps(asked), "options": json.dumps(options.to_data()), "counts": "{}"}
    return int(connection.execute(insert(plans).values(row | texts).returning(plans.c.id)).scalar_one()), at


def note_plan_counts(connection: Connection, id_: int, counts: PlanCounts) -> None:
    """Note what a plan is about."""
    _update_plan(connection, id_, counts=json.dumps(counts.to_data()))


def read_plan(connection: Connection, id_: int, *, counts: bool = True) -> BulkPlan | None:
    """A plan as it stands.

    Parameters:
        counts: whether it is counted how far it is.
    """
    row = connection.execute(select(plans).where(plans.c.id == id_)).one_or_none()
    if row is None:
        return None
    return _build_plan(row, plan_item_table.count_item_states(connection, [id_]).get(id_, {}) if counts else {})


def read_latest_plans(
    connection: Connection, count: int, before: int | None = None, over: OverPlans | None = None
) -> list[BulkPlan]:
    """The latest, the newest first; those that were made before one.

    Parameters:
        over: of what was seen to be over: that is not counted again. Gets what is over of these.
    """
    asked = select(plans).order_by(plans.c.id.desc()).limit(count)
    return _read_plans(connection, asked if before is None else asked.where(plans.c.id < before), over)


def read_applying_plans(connection: Connection, *, counts: bool = True) -> list[BulkPlan]:
    """Those that are applied, the newest first; of all others nothing is counted.

    Parameters:
        counts: whether it is counted how far they are, which takes the longer the larger they are.
    """
    asked = select(plans).where(plans.c.state == PlanState.APPLYING).order_by(plans.c.id.desc())
    return _read_plans(connection, asked) if counts else [_build_plan(row, {}) for row in connection.execute(asked)]


def note_plan_options(connection: Connection, id_: int, options: PlanOptions, why: str) -> None:
    """Note how a plan is to be done, and why."""
    _update_plan(connection, id_, options=json.dumps(options.to_data()), why=why)


def note_target_topic(connection: Connection, plan: BulkPlan, topic_id: str) -> None:
    """Note the id of the topic into which a plan sends from now on."""
    _update_plan(connection, plan.id, options=json.dumps(replace(plan.options, into=topic_id).to_data()))


def delay_plan(connection: Connection, id_: int, ms: int) -> None:
    """Have nobody take a plan up for so long; it can be stopped meanwhile. At most a lease."""
    _update_plan(
        connection, id_, leased_by="nobody yet", leased_until=sql.read_clock(connection) + min(ms, PLAN_LEASE_MS)
    )


def is_plan_leased(connection: Connection, id_: int) -> bool:
    """Whether somebody applies a plan, or it is delayed."""
    until = connection.execute(select(plans.c.leased_until).where(plans.c.id == id_)).scalar()
    return _is_lease_held(until, sql.read_clock(connection))


def lease_plan(connection: Connection, id_: int, who: str) -> bool:
    """Take a plan for oneself, to do it or to go on with it; not where it is over, or another has it.

    One that was stopped, or failed, stays so: what its process had claimed, and left, is brought to its end, and
    nothing more.
    """
    row, at = _lock_plan(connection, id_)
    if row.state not in TO_DO or (row.leased_by is not None and _is_lease_held(row.leased_until, at)):
        return False
    began = {} if row.began_at is not None else {"began_at": at}
    goes_on = {} if row.state in ENDED_EARLY else {"state": PlanState.APPLYING, "stopped": "", "ended_at": None}
    _update_plan(connection, id_, leased_by=who, leased_until=at + PLAN_LEASE_MS, **goes_on, **began)
    return True


def renew_plan_lease(connection: Connection, id_: int, who: str) -> PlanState | None:
    """Go on having a plan: its state, or `None` where another has it by now.

    Its row stays locked until the transaction ends: nothing is done with a plan but by who has it. One that was stopped
    meanwhile is had still, to note what was under way.
    """
    row, at = _lock_plan(connection, id_)
    if row.leased_by != who:
        return None
    _update_plan(connection, id_, leased_until=at + PLAN_LEASE_MS)
    return PlanState(row.state)


def release_plan(connection: Connection, id_: int, who: str) -> None:
    """Give a plan up, for others to go on with."""
    free = {"leased_by": None, "leased_until": None}
    connection.execute(update(plans).where(plans.c.id == id_, plans.c.leased_by == who).values(free))


def change_plan_state(
    connection: Connection, id_: int, from_: Iterable[PlanState], to: PlanState, stopped: str = ""
) -> bool:
    """Change a plan's state, where it is one of those that were expected; who has it, notes what is under way.

    Parameters:
        stopped: why it stops.
    """
    ended = {} if to in (PlanState.PLANNED, PlanState.APPLYING) else {"ended_at": sql.read_clock(connection)}
    changed = update(plans).where(plans.c.id == id_, plans.c.state.in_([*from_]))
    return connection.execute(changed.values(state=to, stopped=stopped, **ended)).rowcount == 1


def note_canary_restart(connection: Connection, plan: BulkPlan, wave: int) -> None:
    """Note the wave with which a stopped canary is gone on with."""
    starts = plan.options.canary_starts
    if wave not in (0, *starts):
        changed = replace(plan.options, canary_starts=(*starts, wave))
        _update_plan(connection, plan.id, options=json.dumps(changed.to_data()))
    note_canary_wave(connection, plan.id, wave)


def note_canary_wave(connection: Connection, id_: int, wave: int) -> None:
    """Note the wave that a canary is at."""
    _update_plan(connection, id_, wave=wave)


def find_abandoned_plans(connection: Connection) -> list[int]:
    """Those that nobody applies, oldest first: that are to be, or were stopped, or failed, with something claimed."""
    each = schema.items.c
    claimed = select(each.plan_id).where(each.plan_id == plans.c.id, each.state == PlanItemState.CLAIMED)
    left = and_(plans.c.state.in_(ENDED_EARLY), claimed.exists())
    asked = select(plans.c.id, plans.c.leased_until).where(or_(plans.c.state == PlanState.APPLYING, left))
    at = sql.read_clock(connection)
    return [
        row.id for row in connection.execute(asked.order_by(plans.c.id)) if not _is_lease_held(row.leased_until, at)
    ]


def read_plan_makers(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Who made which of these plans."""
    if not ids:
        return {}
    asked = select(plans.c.id, plans.c.by).where(plans.c.id.in_(ids))
    return {row.id: row.by for row in connection.execute(asked)}


def find_plans_to_all_handlers(connection: Connection) -> list[int]:
    """Those that were begun, and send also to handlers of which no letter is."""
    begun = plans.c.began_at.is_not(None)
    asked = select(plans.c.id, plans.c.options).where(plans.c.what == PlanKind.REPLAY, begun).order_by(plans.c.id)
    return [row.id for row in connection.execute(asked) if json.loads(row.options).get("all_handlers")]


def _lock_plan(connection: Connection, id_: int) -> tuple[Row[Any], int]:
    """A plan's row, nobody else's until the transaction ends, and the time."""
    row = connection.execute(select(plans).where(plans.c.id == id_).with_for_update()).one()
    return row, sql.read_clock(connection)


def _is_lease_held(until: int | None, at: int) -> bool:
    """Whether a lease holds; not one that is far longer than any is: the clock was ahead, and was set back."""
    return until is not None and at < until <= at + 10 * PLAN_LEASE_MS


def _read_plans(connection: Connection, asked: Select[Any], over: OverPlans | None = None) -> list[BulkPlan]:
    rows, known = connection.execute(asked).all(), {} if over is None else over
    # One that somebody went on with has another end, or none.
    stand = ((row.id, known.get(row.id), (row.state, row.ended_at)) for row in rows)
    same = {id_: its[1] for id_, its, now in stand if its is not None and its[0] == now}
    outcomes = plan_item_table.count_item_states(connection, [row.id for row in rows if row.id not in same]) | same
    found = [_build_plan(row, outcomes.get(row.id, {})) for row in rows]
    known |= {plan.id: ((str(plan.state), plan.ended_at), plan.outcomes) for plan in found if plan.is_over}
    return found


def _update_plan(connection: Connection, id_: int, **values: Any) -> None:
    connection.execute(update(plans).where(plans.c.id == id_).values(values))


def _build_plan(row: Row[Any], outcomes: Mapping[str, int]) -> BulkPlan:
    return BulkPlan(
        row.id,
        PlanKind(row.what),
        PlanState(row.state),
        row.by,
        row.at,
        row.why,
        json.loads(row.asked),
        PlanOptions.from_data(json.loads(row.options)),
        PlanCounts.from_data(json.loads(row.counts)),
        outcomes,
        row.stopped,
        row.wave,
        row.began_at,
        row.ended_at,
    )


class ChangedLetters(NamedTuple):
    """Letters that are not open any more.

    Attributes:
        plans: that have them now, or had them last.
    """

    letters: int
    plans: tuple[int, ...]


_NOT_TAKEN = (PlanItemState.WAITING, PlanItemState.SKIPPED, PlanItemState.REFUSED)


def find_changed_letters(connection: Connection, plan_id: int, since: int) -> ChangedLetters:
    """The letters of a plan that have changed since then (ms) and are not open.

    Of a plan that was not begun: later all are its own doing.
    """
    not_open = [status for status in LetterStatus if status is not LetterStatus.OPEN]
    # Not by the plan's own index: SQLite would look at every letter of the plan, however few have changed.
    plan = func.coalesce(items.c.plan_id, literal_column("0"))
    mine = and_(items.c.letter_id == letters.c.id, plan == plan_id)
    # Of ended letters that are archived, nothing is taken away: those changed before.
    late = (letters.c.status.in_(not_open), letters.c.status_at >= since)
    found = select(letters.c.id).join(items, mine).where(*late).subquery()
    count = int(connection.execute(select(func.count()).select_from(found)).scalar_one())
    if not count:
        return ChangedLetters(0, ())
    other = items.alias()
    has = and_(other.c.letter_id == found.c.id, other.c.plan_id != plan_id, other.c.state.not_in(_NOT_TAKEN))
    ids = connection.execute(select(other.c.plan_id).join(found, has).distinct().order_by(other.c.plan_id)).scalars()
    return ChangedLetters(count, tuple(ids))


def find_ending_replays(connection: Connection, since: int) -> list[int]:
    """The replays that are applied, were come to the end of since then (ms), or have something under way."""
    under_way = exists().where(items.c.plan_id == plans.c.id, items.c.state.in_(UNDER_WAY))
    of_late = or_(plans.c.state == PlanState.APPLYING, plans.c.ended_at >= since, under_way)
    return list(connection.execute(select(plans.c.id).where(plans.c.what == PlanKind.REPLAY, of_late)).scalars())


def count_ended_deliveries(connection: Connection, plan_ids: Iterable[int], since: int) -> dict[int, Counter[str]]:
    """By plan, how many of its deliveries have ended since then (ms), and how."""
    found = {plan_id: Counter[str]() for plan_id in plan_ids}
    ended = select(items.c.plan_id, items.c.state, func.count())
    ended = ended.where(items.c.plan_id.in_(sorted(found)), items.c.ended_at >= since)
    for plan_id, state, count in connection.execute(ended.group_by(items.c.plan_id, items.c.state)):
        found[plan_id][state] = count
    return found
