"""Plans as the database has them: made, found, leased by the process that applies them, stopped."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, insert, or_, select, update

from bridge.deadletters.plan.plan import Counts, ItemState, Options, Plan, State, What
from bridge.deadletters.store import clock, items, schema
from bridge.deadletters.store.schema import plans

#: Ms for which a process that applies a plan has it for itself. It shows more often that it lives; what it publishes
#: it begins early in this time, so that Kafka has answered or given it up before another may look for it.
LEASE: Final = 30_000
#: The states of a plan that can be done, or gone on with.
TO_DO: Final = (State.PLANNED, State.APPLYING, State.STOPPED, State.FAILED)
#: Those of a plan of which nothing more is begun, until somebody goes on with it.
ENDED_EARLY: Final = (State.STOPPED, State.FAILED)
#: Of plans that are over, by their ids: their state, and when they ended; and how many of their deliveries ended how.
Over = dict[int, tuple[tuple[str, int | None], Mapping[str, int]]]


def add(
    connection: Connection, what: What, by: str, why: str, asked: Mapping[str, Any], options: Options
) -> tuple[int, int]:
    """A new plan without letters: its id, and when it was made."""
    at = clock.now(connection)
    row = {"what": what, "state": State.PLANNED, "by": by, "at": at, "why": why}
    texts = {"asked": json.dumps(asked), "options": json.dumps(options.to_data()), "counts": "{}"}
    return int(connection.execute(insert(plans).values(row | texts).returning(plans.c.id)).scalar_one()), at


def counted(connection: Connection, id_: int, counts: Counts) -> None:
    """Note what a plan is about."""
    _update(connection, id_, counts=json.dumps(counts.to_data()))


def one(connection: Connection, id_: int, *, counts: bool = True) -> Plan | None:
    """A plan as it stands.

    Parameters:
        counts: whether it is counted how far it is.
    """
    row = connection.execute(select(plans).where(plans.c.id == id_)).one_or_none()
    if row is None:
        return None
    return _plan(row, items.counts(connection, [id_]).get(id_, {}) if counts else {})


def latest(connection: Connection, count: int, before: int | None = None, over: Over | None = None) -> list[Plan]:
    """The latest, the newest first; those that were made before one.

    Parameters:
        over: of what was seen to be over: that is not counted again. Gets what is over of these.
    """
    asked = select(plans).order_by(plans.c.id.desc()).limit(count)
    return _counted(connection, asked if before is None else asked.where(plans.c.id < before), over)


def applying(connection: Connection, *, counts: bool = True) -> list[Plan]:
    """Those that are applied, the newest first; of all others nothing is counted.

    Parameters:
        counts: whether it is counted how far they are, which takes the longer the larger they are.
    """
    asked = select(plans).where(plans.c.state == State.APPLYING).order_by(plans.c.id.desc())
    return _counted(connection, asked) if counts else [_plan(row, {}) for row in connection.execute(asked)]


def chosen(connection: Connection, id_: int, options: Options, why: str) -> None:
    """Note how a plan is to be done, and why."""
    _update(connection, id_, options=json.dumps(options.to_data()), why=why)


def sends_into(connection: Connection, plan: Plan, topic_id: str) -> None:
    """Note the id of the topic into which a plan sends from now on."""
    _update(connection, plan.id, options=json.dumps(replace(plan.options, into=topic_id).to_data()))


def delay(connection: Connection, id_: int, ms: int) -> None:
    """Have nobody take a plan up for so long; it can be stopped meanwhile. At most a lease."""
    _update(connection, id_, leased_by="nobody yet", leased_until=clock.now(connection) + min(ms, LEASE))


def leased(connection: Connection, id_: int) -> bool:
    """Whether somebody applies a plan, or it is delayed."""
    until = connection.execute(select(plans.c.leased_until).where(plans.c.id == id_)).scalar()
    return _holds(until, clock.now(connection))


def lease(connection: Connection, id_: int, who: str) -> bool:
    """Take a plan for oneself, to do it or to go on with it; not where it is over, or another has it.

    One that was stopped, or failed, stays so: what its process had claimed, and left, is brought to its end, and
    nothing more.
    """
    row, at = _locked(connection, id_)
    if row.state not in TO_DO or (row.leased_by is not None and _holds(row.leased_until, at)):
        return False
    began = {} if row.began_at is not None else {"began_at": at}
    goes_on = {} if row.state in ENDED_EARLY else {"state": State.APPLYING, "stopped": "", "ended_at": None}
    _update(connection, id_, leased_by=who, leased_until=at + LEASE, **goes_on, **began)
    return True


def hold(connection: Connection, id_: int, who: str) -> State | None:
    """Go on having a plan: its state, or `None` where another has it by now.

    Its row stays locked until the transaction ends: nothing is done with a plan but by who has it. One that was stopped
    meanwhile is had still, to note what was under way.
    """
    row, at = _locked(connection, id_)
    if row.leased_by != who:
        return None
    _update(connection, id_, leased_until=at + LEASE)
    return State(row.state)


def release(connection: Connection, id_: int, who: str) -> None:
    """Give a plan up, for others to go on with."""
    free = {"leased_by": None, "leased_until": None}
    connection.execute(update(plans).where(plans.c.id == id_, plans.c.leased_by == who).values(free))


def move(connection: Connection, id_: int, from_: Iterable[State], to: State, stopped: str = "") -> bool:
    """Change a plan's state, where it is one of those that were expected; who has it, notes what is under way.

    Parameters:
        stopped: why it stops.
    """
    ended = {} if to in (State.PLANNED, State.APPLYING) else {"ended_at": clock.now(connection)}
    changed = update(plans).where(plans.c.id == id_, plans.c.state.in_([*from_]))
    return connection.execute(changed.values(state=to, stopped=stopped, **ended)).rowcount == 1


def starts_again(connection: Connection, plan: Plan, wave: int) -> None:
    """Note the wave with which a stopped canary is gone on with."""
    starts = plan.options.canary_starts
    if wave not in (0, *starts):
        changed = replace(plan.options, canary_starts=(*starts, wave))
        _update(connection, plan.id, options=json.dumps(changed.to_data()))
    at_wave(connection, plan.id, wave)


def at_wave(connection: Connection, id_: int, wave: int) -> None:
    """Note the wave that a canary is at."""
    _update(connection, id_, wave=wave)


def abandoned(connection: Connection) -> list[int]:
    """Those that nobody applies, oldest first: that are to be, or were stopped, or failed, with something claimed."""
    each = schema.items.c
    claimed = select(each.plan_id).where(each.plan_id == plans.c.id, each.state == ItemState.CLAIMED)
    left = and_(plans.c.state.in_(ENDED_EARLY), claimed.exists())
    asked = select(plans.c.id, plans.c.leased_until).where(or_(plans.c.state == State.APPLYING, left))
    at = clock.now(connection)
    return [row.id for row in connection.execute(asked.order_by(plans.c.id)) if not _holds(row.leased_until, at)]


def makers(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Who made which of these plans."""
    if not ids:
        return {}
    asked = select(plans.c.id, plans.c.by).where(plans.c.id.in_(ids))
    return {row.id: row.by for row in connection.execute(asked)}


def to_all_handlers(connection: Connection) -> list[int]:
    """Those that were begun, and send also to handlers of which no letter is."""
    begun = plans.c.began_at.is_not(None)
    asked = select(plans.c.id, plans.c.options).where(plans.c.what == What.REPLAY, begun).order_by(plans.c.id)
    return [row.id for row in connection.execute(asked) if json.loads(row.options).get("all_handlers")]


def _locked(connection: Connection, id_: int) -> tuple[Row[Any], int]:
    """A plan's row, nobody else's until the transaction ends, and the time."""
    row = connection.execute(select(plans).where(plans.c.id == id_).with_for_update()).one()
    return row, clock.now(connection)


def _holds(until: int | None, at: int) -> bool:
    """Whether a lease holds; not one that is far longer than any is: the clock was ahead, and was set back."""
    return until is not None and at < until <= at + 10 * LEASE


def _counted(connection: Connection, asked: Select[Any], over: Over | None = None) -> list[Plan]:
    rows, known = connection.execute(asked).all(), {} if over is None else over
    # One that somebody went on with has another end, or none.
    stand = ((row.id, known.get(row.id), (row.state, row.ended_at)) for row in rows)
    same = {id_: its[1] for id_, its, now in stand if its is not None and its[0] == now}
    outcomes = items.counts(connection, [row.id for row in rows if row.id not in same]) | same
    found = [_plan(row, outcomes.get(row.id, {})) for row in rows]
    known |= {plan.id: ((str(plan.state), plan.ended_at), plan.outcomes) for plan in found if plan.is_over}
    return found


def _update(connection: Connection, id_: int, **values: Any) -> None:
    connection.execute(update(plans).where(plans.c.id == id_).values(values))


def _plan(row: Row[Any], outcomes: Mapping[str, int]) -> Plan:
    return Plan(
        row.id,
        What(row.what),
        State(row.state),
        row.by,
        row.at,
        row.why,
        json.loads(row.asked),
        Options.from_data(json.loads(row.options)),
        Counts.from_data(json.loads(row.counts)),
        outcomes,
        row.stopped,
        row.wave,
        row.began_at,
        row.ended_at,
    )
