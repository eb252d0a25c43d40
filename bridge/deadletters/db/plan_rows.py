"""Plans: added, read, leased by the process that applies them, stopped and ended."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Select, and_, exists, func, insert, literal_column, or_, select, update

from bridge.deadletters.db import account_rows, plan_item_rows, sql
from bridge.deadletters.db.table_definitions import items, letters, plans, trail
from bridge.deadletters.model.bulk_plan import (
    NOT_BEGUN,
    UNDER_WAY,
    BulkPlan,
    PlanCounts,
    PlanItemState,
    PlanKind,
    PlanOptions,
    PlanState,
)
from bridge.deadletters.model.stored_letter import LetterStatus

#: Ms of a plan's lease. The process renews it more often, and publishes only early in the lease, so that Kafka has
#: acknowledged or rejected the records before another process may look for them.
PLAN_LEASE_MS: Final = 30_000
#: The states of a plan that can be applied or resumed.
TO_DO: Final = (PlanState.PLANNED, PlanState.APPLYING, PlanState.STOPPED, PlanState.FAILED)
#: The states of a plan of which nothing more is sent until somebody resumes it.
ENDED_EARLY: Final = (PlanState.STOPPED, PlanState.FAILED)
#: The act of the audit log by which a plan came to await a second person.
REQUEST: Final = "request"
#: A cache of plans that are over, by id: state, end, and the counts of their outcomes.
OverPlans = dict[int, tuple[tuple[str, int | None], Mapping[str, int]]]


def add_plan(
    connection: Connection,
    what: PlanKind,
    by: str,
    why: str,
    asked: Mapping[str, Any],
    options: PlanOptions,
    planner: str = "",
) -> tuple[int, int]:
    """Add a plan without letters; return its id, and when it was made.

    Parameters:
        planner: the person behind it, if `by` names none.
    """
    at = sql.read_clock(connection)
    planner = planner or account_rows.find_person(connection, by)
    planner = "" if planner == by else planner
    row = {"what": what, "state": PlanState.PLANNED, "by": by, "at": at, "why": why, "planner": planner}
    texts = {"asked": json.dumps(asked), "options": json.dumps(options.to_data()), "counts": "{}"}
    return int(connection.execute(insert(plans).values(row | texts).returning(plans.c.id)).scalar_one()), at


def note_plan_counts(connection: Connection, id_: int, counts: PlanCounts) -> None:
    """Store the counts of a plan's preview."""
    _update_plan(connection, id_, counts=json.dumps(counts.to_data()))


def read_plan(connection: Connection, id_: int, *, counts: bool = True, lock: bool = False) -> BulkPlan | None:
    """Return a plan.

    Parameters:
        counts: whether its items are counted by state.
        lock: whether nobody else may change it until the transaction ends.
    """
    query = select(plans).where(plans.c.id == id_)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        return None
    return _build_plan(row, plan_item_rows.count_item_states(connection, [id_]).get(id_, {}) if counts else {})


def read_latest_plans(
    connection: Connection, count: int, before: int | None = None, over: OverPlans | None = None
) -> list[BulkPlan]:
    """Return the latest plans, newest first; those before an id if given.

    Parameters:
        over: the cache of plans that are over, which are not counted again; it is extended.
    """
    query = select(plans).order_by(plans.c.id.desc()).limit(count)
    return _read_plans(connection, query if before is None else query.where(plans.c.id < before), over)


def read_earlier_runs(connection: Connection, id_: int, count: int, over: OverPlans | None = None) -> list[BulkPlan]:
    """Return the plans before one that were begun, with the same action and selection, newest first."""
    its = plans.alias("its")
    same = (plans.c.id < its.c.id, plans.c.what == its.c.what, plans.c.asked == its.c.asked)
    query = select(plans).join(its, and_(*same)).where(its.c.id == id_, plans.c.began_at.is_not(None))
    return _read_plans(connection, query.order_by(plans.c.id.desc()).limit(count), over)


def read_applying_plans(connection: Connection, *, counts: bool = True) -> list[BulkPlan]:
    """Return the plans that are being applied, newest first.

    Parameters:
        counts: whether their items are counted by state, which is slow for large plans.
    """
    query = select(plans).where(plans.c.state == PlanState.APPLYING).order_by(plans.c.id.desc())
    return _read_plans(connection, query) if counts else [_build_plan(row, {}) for row in connection.execute(query)]


def read_awaiting_plans(connection: Connection) -> list[tuple[BulkPlan, int]]:
    """Return the plans that await a second person, oldest first, each with since when (ms); items are not counted."""
    rows = connection.execute(select(plans).where(plans.c.state == PlanState.AWAITING).order_by(plans.c.id)).all()
    if not rows:
        return []
    last = func.max(trail.c.at).label("last")
    requests = select(trail.c.plan_id, last).where(trail.c.plan_id.in_([row.id for row in rows]))
    times = connection.execute(requests.where(trail.c.what == REQUEST).group_by(trail.c.plan_id))
    since: dict[int, int] = {row.plan_id: row.last for row in times}
    return [(_build_plan(row, {}), since.get(row.id, row.at)) for row in rows]


def note_plan_options(connection: Connection, id_: int, options: PlanOptions, why: str) -> None:
    """Store the options and the reason of a plan."""
    _update_plan(connection, id_, options=json.dumps(options.to_data()), why=why)


def note_plan_approval(connection: Connection, id_: int, by: str) -> None:
    """Store that a second person has approved a plan."""
    _update_plan(connection, id_, approved_by=by, approved_at=sql.read_clock(connection))


def note_target_topic(connection: Connection, plan: BulkPlan, topic_id: str) -> None:
    """Store the id of the topic to which a plan sends from now on."""
    _update_plan(connection, plan.id, options=json.dumps(replace(plan.options, into=topic_id).to_data()))


def delay_plan(connection: Connection, id_: int, ms: int) -> None:
    """Delay a plan, for at most the time of a lease: no process takes it, and it can be stopped."""
    _update_plan(
        connection, id_, leased_by="nobody yet", leased_until=sql.read_clock(connection) + min(ms, PLAN_LEASE_MS)
    )


def is_plan_leased(connection: Connection, id_: int) -> bool:
    """Return whether a process applies a plan, or it is delayed."""
    until = connection.execute(select(plans.c.leased_until).where(plans.c.id == id_)).scalar()
    return _is_lease_held(until, sql.read_clock(connection))


def lease_plan(connection: Connection, id_: int, who: str) -> bool:
    """Lease a plan to apply or resume it; return false if it is over or leased.

    A stopped or failed plan stays so: only the items that its process left claimed are brought to
    their end.
    """
    row, at = _lock_plan(connection, id_)
    if row.state not in TO_DO or (row.leased_by is not None and _is_lease_held(row.leased_until, at)):
        return False
    began = {} if row.began_at is not None else {"began_at": at}
    goes_on = {} if row.state in ENDED_EARLY else {"state": PlanState.APPLYING, "stopped": "", "ended_at": None}
    _update_plan(connection, id_, leased_by=who, leased_until=at + PLAN_LEASE_MS, **goes_on, **began)
    return True


def renew_plan_lease(connection: Connection, id_: int, who: str) -> PlanState | None:
    """Renew the lease of a plan; return its state, or `None` if another process has it.

    The row stays locked until the transaction ends. A plan that was stopped meanwhile keeps its lease, to note the
    items in flight.
    """
    row, at = _lock_plan(connection, id_)
    if row.leased_by != who:
        return None
    _update_plan(connection, id_, leased_until=at + PLAN_LEASE_MS)
    return PlanState(row.state)


def release_plan(connection: Connection, id_: int, who: str) -> None:
    """Give up the lease of a plan, for other processes to resume it."""
    free = {"leased_by": None, "leased_until": None}
    connection.execute(update(plans).where(plans.c.id == id_, plans.c.leased_by == who).values(free))


def change_plan_state(
    connection: Connection, id_: int, from_: Iterable[PlanState], to: PlanState, stopped: str = ""
) -> bool:
    """Change a plan's state if it is an expected one; the process with the lease still notes items in flight.

    Parameters:
        stopped: the reason, if it stops.
    """
    ended = {} if to in (*NOT_BEGUN, PlanState.APPLYING) else {"ended_at": sql.read_clock(connection)}
    changed = update(plans).where(plans.c.id == id_, plans.c.state.in_([*from_]))
    return connection.execute(changed.values(state=to, stopped=stopped, **ended)).rowcount == 1


def note_canary_restart(connection: Connection, plan: BulkPlan, wave: int) -> None:
    """Note the wave with which a stopped canary is resumed."""
    starts = plan.options.canary_starts
    if wave not in (0, *starts):
        changed = replace(plan.options, canary_starts=(*starts, wave))
        _update_plan(connection, plan.id, options=json.dumps(changed.to_data()))
    note_canary_wave(connection, plan.id, wave)


def note_canary_wave(connection: Connection, id_: int, wave: int) -> None:
    """Note the current wave of a canary."""
    _update_plan(connection, id_, wave=wave)


def find_abandoned_plans(connection: Connection) -> list[int]:
    """Return the plans without a lease, oldest first: to be applied, or stopped or failed with claimed items."""
    each = items.c
    claimed = select(each.plan_id).where(each.plan_id == plans.c.id, each.state == PlanItemState.CLAIMED)
    left = and_(plans.c.state.in_(ENDED_EARLY), claimed.exists())
    query = select(plans.c.id, plans.c.leased_until).where(or_(plans.c.state == PlanState.APPLYING, left))
    at = sql.read_clock(connection)
    return [
        row.id for row in connection.execute(query.order_by(plans.c.id)) if not _is_lease_held(row.leased_until, at)
    ]


def read_plan_makers(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Return the makers of plans by id."""
    if not ids:
        return {}
    query = select(plans.c.id, plans.c.by).where(plans.c.id.in_(ids))
    return {row.id: row.by for row in connection.execute(query)}


def find_plans_to_all_handlers(connection: Connection) -> list[int]:
    """Return the plans in progress that also send to handlers without a letter."""
    begun = plans.c.began_at.is_not(None)
    query = select(plans.c.id, plans.c.options).where(plans.c.what == PlanKind.REPLAY, begun).order_by(plans.c.id)
    return [row.id for row in connection.execute(query) if json.loads(row.options).get("all_handlers")]


def _lock_plan(connection: Connection, id_: int) -> tuple[Row[Any], int]:
    """Return a plan's row, locked until the transaction ends, and the time."""
    row = connection.execute(select(plans).where(plans.c.id == id_).with_for_update()).one()
    return row, sql.read_clock(connection)


def _is_lease_held(until: int | None, at: int) -> bool:
    """Return whether a lease holds; one that is too long is invalid: the clock was ahead, and was set back."""
    return until is not None and at < until <= at + 10 * PLAN_LEASE_MS


def _read_plans(connection: Connection, asked: Select[Any], over: OverPlans | None = None) -> list[BulkPlan]:
    rows, known = connection.execute(asked).all(), {} if over is None else over
    # A plan that was resumed has another end, or none.
    stand = ((row.id, known.get(row.id), (row.state, row.ended_at)) for row in rows)
    same = {id_: its[1] for id_, its, now in stand if its is not None and its[0] == now}
    outcomes = plan_item_rows.count_item_states(connection, [row.id for row in rows if row.id not in same]) | same
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
        row.planner or row.by,
        row.approved_by,
        row.approved_at,
    )


class ChangedLetters(NamedTuple):
    """Letters of a plan that are no longer open.

    Attributes:
        plans: the plans that have them now, or had them last.
    """

    letters: int
    plans: tuple[int, ...]


_NOT_TAKEN = (PlanItemState.WAITING, PlanItemState.SKIPPED, PlanItemState.REFUSED)


def find_changed_letters(connection: Connection, plan_id: int, since: int) -> ChangedLetters:
    """Return the letters of a plan that have changed since a time (ms) and are not open.

    For plans that were not begun: later the plan itself changes them.
    """
    not_open = [status for status in LetterStatus if status is not LetterStatus.OPEN]
    # Not by the plan's index: SQLite would read every letter of the plan, however few have changed.
    plan = func.coalesce(items.c.plan_id, literal_column("0"))
    mine = and_(items.c.letter_id == letters.c.id, plan == plan_id)
    # To archive ended letters takes nothing from this plan: they had changed before.
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
    """Return the replays that are applied, ended since a time (ms), or have items in flight."""
    under_way = exists().where(items.c.plan_id == plans.c.id, items.c.state.in_(UNDER_WAY))
    of_late = or_(plans.c.state == PlanState.APPLYING, plans.c.ended_at >= since, under_way)
    return list(connection.execute(select(plans.c.id).where(plans.c.what == PlanKind.REPLAY, of_late)).scalars())


def count_ended_deliveries(connection: Connection, plan_ids: Iterable[int], since: int) -> dict[int, Counter[str]]:
    """Return, by plan, how many of its deliveries have ended since a time (ms), by outcome."""
    found = {plan_id: Counter[str]() for plan_id in plan_ids}
    ended = select(items.c.plan_id, items.c.state, func.count())
    ended = ended.where(items.c.plan_id.in_(sorted(found)), items.c.ended_at >= since)
    for plan_id, state, count in connection.execute(ended.group_by(items.c.plan_id, items.c.state)):
        found[plan_id][state] = count
    return found
