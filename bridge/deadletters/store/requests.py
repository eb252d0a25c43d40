"""The rows of requests: what programs have asked to be done, by their idempotency key."""

from typing import NamedTuple

from sqlalchemy import Connection, Update, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from bridge.deadletters.store.schema import requests
from bridge.errors import RequestTakenOver


class Claim(NamedTuple):
    """A request that this process does.

    Attributes:
        by: tells it from others that did, or will do, the same one.
    """

    digest: bytes
    by: bytes


class Request(NamedTuple):
    """A request as it stands.

    Attributes:
        claimed_until: until when nobody else may do it, ms since the epoch.
        trail_id: of the entry that says that it was done; `None`: it was not, or it is nothing of the database.
        status, answer: what was answered; `None`: nothing yet.
    """

    asked: bytes
    claimed_until: int
    trail_id: int | None
    status: int | None
    answer: str | None


def begin(connection: Connection, claim: Claim, asked: bytes, now: int, until: int, claimed_until: int) -> bool:
    """Claim a request that nobody has made yet; whether it was so. Those that are kept no longer go."""
    connection.execute(delete(requests).where(requests.c.until <= now))
    insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(requests)
    row = {"digest": claim.digest, "asked": asked, "until": until}
    row |= {"claimed_by": claim.by, "claimed_until": claimed_until}
    made = insert.values(row).on_conflict_do_nothing().returning(requests.c.digest)
    return connection.execute(made).first() is not None


def one(connection: Connection, digest: bytes) -> Request:
    """A request that is there, held until the transaction ends."""
    held = [requests.c[name] for name in Request._fields]
    return Request(*connection.execute(select(*held).where(requests.c.digest == digest).with_for_update()).one())


def take_over(connection: Connection, claim: Claim, claimed_until: int) -> None:
    """Claim a request whose process has died."""
    taken = {"claimed_by": claim.by, "claimed_until": claimed_until}
    connection.execute(update(requests).where(requests.c.digest == claim.digest).values(taken))


def done(connection: Connection, claim: Claim, trail_id: int) -> None:
    """It is done, in this transaction.

    Raises:
        RequestTakenOver: another process has claimed it meanwhile.
    """
    if connection.execute(_mine(claim).values(trail_id=trail_id)).rowcount != 1:
        raise RequestTakenOver("This request was taken over: this process was away for too long. It did nothing.")


def answered(connection: Connection, claim: Claim, status: int, answer: str) -> None:
    """Keep what was answered, for when it is asked again."""
    connection.execute(_mine(claim).values(status=status, answer=answer))


def leave(connection: Connection, claim: Claim) -> None:
    """Give up one that could not be done, or answered: who asks again goes on with it at once."""
    mine = (requests.c.digest == claim.digest, requests.c.claimed_by == claim.by)
    connection.execute(delete(requests).where(*mine, requests.c.trail_id.is_(None)))
    connection.execute(_mine(claim).values(claimed_until=0))


def _mine(claim: Claim) -> Update:
    return update(requests).where(requests.c.digest == claim.digest, requests.c.claimed_by == claim.by)
