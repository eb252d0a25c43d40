"""The rows of users."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from bridge.deadletters.store.schema import sessions, users


class User(NamedTuple):
    """Somebody who may sign in, without their password.

    Attributes:
        role: "viewer", "operator" or "admin".
        at: when they were added, ms since the epoch.
        by: who added them.
        chooses: whether they have no password yet, and choose one by a link (bridge.deadletters.users.link).
    """

    id: int
    name: str
    role: str
    at: int
    by: str
    chooses: bool


class Secret(NamedTuple):
    """By what a user is known; its repr does not show it.

    Attributes:
        password: its hash, or that of the link by which one is chosen.
    """

    id: int
    name: str
    password: str

    def __repr__(self) -> str:
        """Without the hash."""
        return f"Secret(id={self.id}, name={self.name!r})"


_USER = select(users.c.id, users.c.name, users.c.role, users.c.at, users.c.by, users.c.password.startswith("link$"))


def add(connection: Connection, name: str, role: str, password: str, at: int, by: str) -> None:
    """Add one; whoever came by the one-time link is out, also if nobody is left some day."""
    connection.execute(delete(sessions).where(sessions.c.user_id.is_(None)))
    connection.execute(insert(users).values(name=name, role=role, password=password, at=at, by=by))


def find(connection: Connection, name: str) -> User | None:
    """The one of this name, held until the transaction ends."""
    row = connection.execute(_USER.where(users.c.name == name).with_for_update()).first()
    return None if row is None else User(*row)


def of_id(connection: Connection, id_: int) -> User | None:
    """The one of this number."""
    row = connection.execute(_USER.where(users.c.id == id_)).first()
    return None if row is None else User(*row)


def hold(connection: Connection, id_: int) -> User | None:
    """The one of this number, held until the transaction ends."""
    row = connection.execute(_USER.where(users.c.id == id_).with_for_update()).first()
    return None if row is None else User(*row)


def admins(connection: Connection) -> set[int]:
    """Those who may all, and have a password; held until the transaction ends."""
    found = select(users.c.id).where(users.c.role == "admin", ~users.c.password.startswith("link$"))
    return set(connection.execute(found.order_by(users.c.id).with_for_update()).scalars())


def everybody(connection: Connection) -> list[User]:
    """All of them, by name."""
    return [User(*row) for row in connection.execute(_USER.order_by(users.c.name))]


def is_any(connection: Connection) -> bool:
    """Whether there is one."""
    return connection.execute(select(users.c.id).limit(1)).first() is not None


def secret(connection: Connection, name: str) -> Secret | None:
    """By what the one of this name is known."""
    row = connection.execute(select(users.c.id, users.c.name, users.c.password).where(users.c.name == name)).first()
    return None if row is None else Secret(*row)


def is_still(connection: Connection, known: Secret) -> bool:
    """Whether a user is there, with the same password; if so, both stay until the transaction ends."""
    same = (users.c.id == known.id) & (users.c.password == known.password)
    return connection.execute(select(users.c.id).where(same).with_for_update()).first() is not None


def set_role(connection: Connection, id_: int, role: str) -> None:
    """Change what a user may."""
    connection.execute(update(users).where(users.c.id == id_).values(role=role))


def set_password(connection: Connection, id_: int, password: str) -> None:
    """Change a user's password, to one of this hash."""
    connection.execute(update(users).where(users.c.id == id_).values(password=password))


def remove(connection: Connection, id_: int) -> None:
    """Remove a user, and with them their sessions; and those of the one-time link, if one began beside the first."""
    connection.execute(delete(sessions).where(sessions.c.user_id.is_(None)))
    connection.execute(delete(users).where(users.c.id == id_))
