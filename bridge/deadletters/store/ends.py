"""How replays ended of late, counted by plan: only those of which something may have ended are looked at."""

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, exists, func, or_, select

from bridge.deadletters.plan.plan import UNDER_WAY, State, What
from bridge.deadletters.store.schema import items, plans


def changing(connection: Connection, since: int) -> list[int]:
    """The replays that are applied, were come to the end of since then (ms), or have something under way."""
    under_way = exists().where(items.c.plan_id == plans.c.id, items.c.state.in_(UNDER_WAY))
    of_late = or_(plans.c.state == State.APPLYING, plans.c.ended_at >= since, under_way)
    return list(connection.execute(select(plans.c.id).where(plans.c.what == What.REPLAY, of_late)).scalars())


def counted(connection: Connection, plan_ids: Iterable[int], since: int) -> dict[int, Counter[str]]:
    """By plan, how many of its deliveries have ended since then (ms), and how."""
    found = {plan_id: Counter[str]() for plan_id in plan_ids}
    ended = select(items.c.plan_id, items.c.state, func.count())
    ended = ended.where(items.c.plan_id.in_(sorted(found)), items.c.ended_at >= since)
    for plan_id, state, count in connection.execute(ended.group_by(items.c.plan_id, items.c.state)):
        found[plan_id][state] = count
    return found
