"""The rows of sessions: who is signed in."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from bridge.deadletters.store.schema import sessions, users


class Found(NamedTuple):
    """Whose session it is; without a name, that of the one-time link."""

    name: str | None
    role: str | None


def add(connection: Connection, digest: bytes, user_id: int | None, at: int, until: int) -> None:
    """Begin one; those that are over go.

    Parameters:
        user_id: `None`: of the one-time link.
        at, until: ms since the epoch.
    """
    connection.execute(delete(sessions).where(sessions.c.until <= at))
    connection.execute(insert(sessions).values(digest=digest, user_id=user_id, at=at, until=until))


def find(connection: Connection, digest: bytes, now: int) -> Found | None:
    """Whose session this is; `None`: there is none, or it is over."""
    whose = sessions.outerjoin(users, users.c.id == sessions.c.user_id)
    found = select(users.c.name, users.c.role).select_from(whose)
    row = connection.execute(found.where(sessions.c.digest == digest, sessions.c.until > now)).first()
    return None if row is None else Found(*row)


def end(connection: Connection, digest: bytes) -> None:
    """End one."""
    connection.execute(delete(sessions).where(sessions.c.digest == digest))


def end_all(connection: Connection, user_id: int) -> int:
    """End all of a user's; how many there were."""
    return int(connection.execute(delete(sessions).where(sessions.c.user_id == user_id)).rowcount)
