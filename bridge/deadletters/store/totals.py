"""All letters counted, from tallies and hours, and the ends of two indexes."""

from typing import Final

from sqlalchemy import Connection, func, select

from bridge.deadletters.letters.letter import Status
from bridge.deadletters.store.schema import hours, kinds, letters, tallies

#: Of how many letters, the latest, it is looked at how long they took to be resolved.
LATEST: Final = 1_000


def handled(connection: Connection) -> list[tuple[str, str, str, int]]:
    """(handler, reason, status, how many letters), without what is 0."""
    names = (kinds.c.handler, kinds.c.reason, tallies.c.status)
    counted = select(*names, func.sum(tallies.c.count)).join(kinds, kinds.c.id == tallies.c.kind_id)
    rows = connection.execute(counted.where(tallies.c.count > 0).group_by(*names).order_by(*names))
    return [(handler, reason, status, int(count)) for handler, reason, status, count in rows]


def by_hour(connection: Connection, since: int) -> dict[int, int]:
    """Failures by hour of Unix time, from an hour on."""
    counted = select(hours.c.hour, func.sum(hours.c.count)).where(hours.c.hour >= since).group_by(hours.c.hour)
    return {hour: int(count) for hour, count in connection.execute(counted)}


def groups_open(connection: Connection) -> int:
    """How many groups have open letters."""
    open_ = (tallies.c.status == Status.OPEN, tallies.c.count > 0)
    groups = select(func.count(kinds.c.group_id.distinct())).join(tallies, tallies.c.kind_id == kinds.c.id)
    return int(connection.execute(groups.where(*open_)).scalar_one())


def oldest_open(connection: Connection) -> int | None:
    """When the open letter failed that failed first, ms since the epoch."""
    oldest = select(letters.c.failed_at).where(letters.c.status == Status.OPEN)
    return connection.execute(oldest.order_by(letters.c.failed_at, letters.c.id).limit(1)).scalar()


def resolved_after(connection: Connection) -> list[int]:
    """Milliseconds from their last failure to their end, of the letters that were resolved last; ascending."""
    took = select((letters.c.status_at - letters.c.failed_at).label("took"))
    took = took.where(letters.c.status == Status.RESOLVED).order_by(letters.c.status_at.desc()).limit(LATEST)
    return sorted(max(0, each) for each in connection.execute(took).scalars())
