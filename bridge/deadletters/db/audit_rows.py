"""The audit log, written in the transaction of the act and never deleted; and the requests of programs, whose
idempotency key an entry completes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Update, delete, func, insert, or_, select, update

from bridge.deadletters.db import sql
from bridge.deadletters.db.table_definitions import items, requests, trail
from bridge.errors import RequestTakenOver


class RequestClaim(NamedTuple):
    """The claim of a process on a request.

    Attributes:
        by: the process's id, which tells its claim from others on the same request.
    """

    digest: bytes
    by: bytes


class StoredRequest(NamedTuple):
    """A request as it is stored.

    Attributes:
        claimed_until: the end of the claim, ms since the epoch.
        trail_id: the audit entry of the act; `None`: it was not done, or is no act in the database.
        status, answer: the answer; `None`: none yet.
    """

    asked: bytes
    claimed_until: int
    trail_id: int | None
    status: int | None
    answer: str | None


def begin_request(
    connection: Connection, claim: RequestClaim, asked: bytes, now: int, until: int, claimed_until: int
) -> bool:
    """Claim a new request and delete expired ones; return whether the request was new."""
    connection.execute(delete(requests).where(requests.c.until <= now))
    row = {"digest": claim.digest, "asked": asked, "until": until}
    row |= {"claimed_by": claim.by, "claimed_until": claimed_until}
    made = sql.insert_missing(connection, requests).values(row).returning(requests.c.digest)
    return connection.execute(made).first() is not None


def hold_request(connection: Connection, digest: bytes) -> StoredRequest:
    """Return a request that exists, locked until the transaction ends."""
    held = [requests.c[name] for name in StoredRequest._fields]
    return StoredRequest(*connection.execute(select(*held).where(requests.c.digest == digest).with_for_update()).one())


def take_over_request(connection: Connection, claim: RequestClaim, claimed_until: int) -> None:
    """Claim a request whose process has died."""
    taken = {"claimed_by": claim.by, "claimed_until": claimed_until}
    connection.execute(update(requests).where(requests.c.digest == claim.digest).values(taken))


def finish_request(connection: Connection, claim: RequestClaim, trail_id: int) -> None:
    """Note the audit entry of a request in this transaction: it is done.

    Raises:
        RequestTakenOver: another process has claimed it.
    """
    if connection.execute(_is_claimed_by(claim).values(trail_id=trail_id)).rowcount != 1:
        raise RequestTakenOver(
            "This request was taken over by another process: this one did not respond for too long. It did nothing."
        )


def keep_answer(connection: Connection, claim: RequestClaim, status: int, answer: str) -> None:
    """Store the answer for repetitions of the request."""
    connection.execute(_is_claimed_by(claim).values(status=status, answer=answer))


def release_request(connection: Connection, claim: RequestClaim) -> None:
    """Release a request that could not be done or answered: a repetition resumes it at once."""
    mine = (requests.c.digest == claim.digest, requests.c.claimed_by == claim.by)
    connection.execute(delete(requests).where(*mine, requests.c.trail_id.is_(None)))
    connection.execute(_is_claimed_by(claim).values(claimed_until=0))


def _is_claimed_by(claim: RequestClaim) -> Update:
    return update(requests).where(requests.c.digest == claim.digest, requests.c.claimed_by == claim.by)


class AuditEntry(NamedTuple):
    """An entry of the audit log.

    Attributes:
        at: ms since the epoch.
        what: "note", "replay", "discard", …
        said: in words: the note, the reason, the selection.
        letter: the delivery's name, which outlives its row; empty if the act was not on a single letter.
    """

    id: int
    at: int
    by: str
    what: str
    said: str
    letter_id: int | None
    letter: str
    group_id: int | None
    plan_id: int | None


def write_entry(
    connection: Connection,
    at: int,
    by: str,
    what: str,
    said: str,
    *,
    letter_id: int | None = None,
    letter: str = "",
    group_id: int | None = None,
    plan_id: int | None = None,
) -> int:
    """Add an audit entry in the transaction of the act: it is there if, and only if, the act was done.

    Returns: its number.

    Raises:
        RequestTakenOver: it belongs to a request (`Database.doing`) that another process has claimed.
    """
    whom = {"letter_id": letter_id, "letter": letter, "group_id": group_id, "plan_id": plan_id}
    written = insert(trail).values(at=at, by=by, what=what, said=said, **whom).returning(trail.c.id)
    id_ = int(connection.execute(written).scalar_one())
    if claim := connection.get_execution_options().get("desk_claim"):
        finish_request(connection, claim, id_)
    return id_


def read_entry(connection: Connection, id_: int) -> AuditEntry | None:
    """Return an audit entry."""
    return sql.read_one(connection, select(trail).where(trail.c.id == id_), AuditEntry)


def read_history(
    connection: Connection,
    *,
    letter_id: int | None = None,
    group_id: int | None = None,
    plan_id: int | None = None,
    last: int = 200,
) -> list[AuditEntry]:
    """Return the audit entries about a letter (also by plans that had it), a group or a plan, or all; oldest first.

    Parameters:
        last: how many entries at most, the latest.
    """
    query = select(trail)
    if letter_id is not None:
        plans = select(items.c.plan_id).where(items.c.letter_id == letter_id)
        query = query.where(or_(trail.c.letter_id == letter_id, trail.c.plan_id.in_(plans)))
    if group_id is not None:
        query = query.where(trail.c.group_id == group_id)
    if plan_id is not None:
        query = query.where(trail.c.plan_id == plan_id)
    rows = connection.execute(query.order_by(trail.c.id.desc()).limit(last)).all()
    return [AuditEntry(*row) for row in reversed(rows)]


class EntryFilter(NamedTuple):
    """The audit entries that somebody asks for.

    Attributes:
        by: the actor; empty: any.
        what: kinds; empty: any.
        since, until: ms since the epoch, the end left out; `None`: no end.
        hidden: kinds that the reader sees of itself alone.
        reader: the name of the reader.
    """

    by: str = ""
    what: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    hidden: Sequence[str] = ()
    reader: str = ""


ALL_ENTRIES: Final = EntryFilter()


def read_entries(connection: Connection, wanted: EntryFilter, before: int | None, limit: int) -> list[AuditEntry]:
    """Return audit entries, newest first.

    Parameters:
        before: the entry after which the page begins.
    """
    query = select(trail).where(*_build_entry_conditions(wanted)).order_by(trail.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(trail.c.id < before)
    return [AuditEntry(*row) for row in connection.execute(query)]


def count_entries(connection: Connection, wanted: EntryFilter) -> int:
    """Return the number of audit entries."""
    counted = select(func.count()).select_from(trail).where(*_build_entry_conditions(wanted))
    return int(connection.execute(counted).scalar_one())


def count_by_actor(connection: Connection, wanted: EntryFilter, limit: int) -> list[tuple[str, int]]:
    """Return the actors with the most entries, and their numbers of entries, the most first."""
    count = func.count()
    query = select(trail.c.by, count).where(*_build_entry_conditions(wanted)).group_by(trail.c.by)
    return [(str(by), int(n)) for by, n in connection.execute(query.order_by(count.desc(), trail.c.by).limit(limit))]


def _build_entry_conditions(wanted: EntryFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.by:
        found.append(trail.c.by == wanted.by)
    if wanted.what:
        found.append(trail.c.what.in_(wanted.what))
    if wanted.since is not None:
        found.append(trail.c.at >= wanted.since)
    if wanted.until is not None:
        found.append(trail.c.at < wanted.until)
    if wanted.hidden:
        found.append(or_(trail.c.what.not_in(wanted.hidden), trail.c.by == wanted.reader))
    return found
