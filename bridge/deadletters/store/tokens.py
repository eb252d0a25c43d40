"""The rows of tokens: what programs sign in with."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from bridge.deadletters.store.schema import tokens


class Token(NamedTuple):
    """What a program signs in with, without its secret.

    Attributes:
        name: what it is for.
        role: "viewer", "operator" or "admin".
        at, until: when it was made, and when it ends, ms since the epoch.
        by: who made it.
        used_at: when it was last used, to a minute; `None`: never.
    """

    id: int
    name: str
    role: str
    at: int
    by: str
    until: int
    used_at: int | None


_TOKEN = select(tokens.c.id, tokens.c.name, tokens.c.role, tokens.c.at, tokens.c.by, tokens.c.until, tokens.c.used_at)


def add(connection: Connection, digest: bytes, name: str, role: str, at: int, by: str, until: int) -> Token:
    """Add one."""
    row = {"digest": digest, "name": name, "role": role, "at": at, "by": by, "until": until}
    id_ = connection.execute(insert(tokens).values(row).returning(tokens.c.id)).scalar_one()
    return Token(int(id_), name, role, at, by, until, None)


def everything(connection: Connection) -> list[Token]:
    """All of them, those that have ended too, by name."""
    return [Token(*row) for row in connection.execute(_TOKEN.order_by(tokens.c.name, tokens.c.id))]


def one(connection: Connection, id_: int) -> Token | None:
    """The one of this number, held until the transaction ends."""
    row = connection.execute(_TOKEN.where(tokens.c.id == id_).with_for_update()).first()
    return None if row is None else Token(*row)


def living(connection: Connection, name: str, now: int) -> Token | None:
    """The one of this name that has not ended."""
    row = connection.execute(_TOKEN.where(tokens.c.name == name, tokens.c.until > now)).first()
    return None if row is None else Token(*row)


def find(connection: Connection, digest: bytes, now: int) -> Token | None:
    """The one of this secret's hash; `None`: there is none, or it has ended."""
    row = connection.execute(_TOKEN.where(tokens.c.digest == digest, tokens.c.until > now)).first()
    return None if row is None else Token(*row)


def used(connection: Connection, id_: int, at: int) -> None:
    """Note that it was used."""
    connection.execute(update(tokens).where(tokens.c.id == id_).values(used_at=at))


def remove(connection: Connection, id_: int) -> None:
    """Remove one."""
    connection.execute(delete(tokens).where(tokens.c.id == id_))
