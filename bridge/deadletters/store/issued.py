"""The rows of sessions of people whom an issuer has signed in."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from bridge.deadletters.store.schema import issued


class Found(NamedTuple):
    """Whose session it is."""

    name: str
    role: str


def add(connection: Connection, digest: bytes, issuer: str, name: str, role: str, at: int, until: int) -> None:
    """Begin one; those that are over go.

    Parameters:
        at, until: ms since the epoch.
    """
    connection.execute(delete(issued).where(issued.c.until <= at))
    row = {"digest": digest, "issuer": issuer, "name": name, "role": role, "at": at, "until": until}
    connection.execute(insert(issued).values(row))


def find(connection: Connection, digest: bytes, issuer: str, now: int) -> Found | None:
    """Whose session this is; `None`: there is none of this issuer, or it is over."""
    found = select(issued.c.name, issued.c.role).where(issued.c.digest == digest, issued.c.issuer == issuer)
    row = connection.execute(found.where(issued.c.until > now)).first()
    return None if row is None else Found(*row)


def end(connection: Connection, digest: bytes) -> None:
    """End one."""
    connection.execute(delete(issued).where(issued.c.digest == digest))


def end_all(connection: Connection) -> int:
    """End all of them; how many there were."""
    return int(connection.execute(delete(issued)).rowcount)
