"""Users, their sessions, the sessions of an OpenID Connect issuer, and API tokens."""

from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from bridge.deadletters.db.sql import read_one
from bridge.deadletters.db.table_definitions import issued, sessions, tokens, users
from bridge.deadletters.model.letter_scope import LetterScope


class User(NamedTuple):
    """A user of the console, without the password.

    Attributes:
        role: "viewer", "operator" or "admin".
        at: when it was added, ms since the epoch.
        by: the actor who added it.
        chooses: whether the user has no password yet, but a link to choose one.
        topics, consumer_groups: the columns of its scope.
    """

    id: int
    name: str
    role: str
    at: int
    by: str
    chooses: bool
    topics: str = ""
    consumer_groups: str = ""

    @property
    def scope(self) -> LetterScope:
        """Return the letters that it sees."""
        return LetterScope.from_columns(self.topics, self.consumer_groups)


class UserSecret(NamedTuple):
    """A user's password hash; its repr does not show it.

    Attributes:
        password: the hash of the password, or of the link to choose one.
    """

    id: int
    name: str
    password: str

    def __repr__(self) -> str:
        """Return id and name without the hash."""
        return f"Secret(id={self.id}, name={self.name!r})"


_SELECT_USER = select(
    users.c.id,
    users.c.name,
    users.c.role,
    users.c.at,
    users.c.by,
    users.c.password.startswith("link$"),
    users.c.topics,
    users.c.consumer_groups,
)


def add_user(connection: Connection, name: str, role: str, password: str, at: int, by: str, scope: LetterScope) -> None:
    """Add a user, and end the sessions of the one-time link for good."""
    connection.execute(delete(sessions).where(sessions.c.user_id.is_(None)))
    row = {"name": name, "role": role, "password": password, "at": at, "by": by}
    connection.execute(insert(users).values(row | scope.stored))


def hold_user_of_name(connection: Connection, name: str) -> User | None:
    """Return the user of a name, locked until the transaction ends."""
    return read_one(connection, _SELECT_USER.where(users.c.name == name).with_for_update(), User)


def read_user(connection: Connection, id_: int) -> User | None:
    """Return the user of an id."""
    return read_one(connection, _SELECT_USER.where(users.c.id == id_), User)


def hold_user(connection: Connection, id_: int) -> User | None:
    """Return the user of an id, locked until the transaction ends."""
    return read_one(connection, _SELECT_USER.where(users.c.id == id_).with_for_update(), User)


def hold_admins(connection: Connection) -> set[int]:
    """Return the ids of the admins who see everything and have a password, locked until the transaction ends."""
    whole = (users.c.topics == "", users.c.consumer_groups == "")
    found = select(users.c.id).where(users.c.role == "admin", ~users.c.password.startswith("link$"), *whole)
    return set(connection.execute(found.order_by(users.c.id).with_for_update()).scalars())


def list_users(connection: Connection) -> list[User]:
    """Return all users by name."""
    return [User(*row) for row in connection.execute(_SELECT_USER.order_by(users.c.name))]


def has_users(connection: Connection) -> bool:
    """Return whether there are users."""
    return connection.execute(select(users.c.id).limit(1)).first() is not None


def read_user_secret(connection: Connection, name: str) -> UserSecret | None:
    """Return the password hash of the user of a name."""
    return read_one(
        connection, select(users.c.id, users.c.name, users.c.password).where(users.c.name == name), UserSecret
    )


def hold_unchanged_user(connection: Connection, known: UserSecret) -> bool:
    """Return whether a user has the same password still, and lock the row until the transaction ends."""
    same = (users.c.id == known.id) & (users.c.password == known.password)
    return connection.execute(select(users.c.id).where(same).with_for_update()).first() is not None


def set_user_role(connection: Connection, id_: int, role: str) -> None:
    """Change the role of a user."""
    connection.execute(update(users).where(users.c.id == id_).values(role=role))


def set_user_scope(connection: Connection, id_: int, scope: LetterScope) -> None:
    """Change the scope of a user."""
    connection.execute(update(users).where(users.c.id == id_).values(scope.stored))


def set_user_password(connection: Connection, id_: int, password: str) -> None:
    """Change the password hash of a user."""
    connection.execute(update(users).where(users.c.id == id_).values(password=password))


def remove_user(connection: Connection, id_: int) -> None:
    """Remove a user and all sessions; also those of the one-time link, if one began beside the first user."""
    connection.execute(delete(sessions).where(sessions.c.user_id.is_(None)))
    connection.execute(delete(users).where(users.c.id == id_))


class SessionRow(NamedTuple):
    """A session's user; without a name, that of the one-time link."""

    name: str | None
    role: str | None
    topics: str | None
    consumer_groups: str | None

    @property
    def scope(self) -> LetterScope:
        """Return the letters that the user sees."""
        return LetterScope.from_columns(self.topics or "", self.consumer_groups or "")


def add_session(connection: Connection, digest: bytes, user_id: int | None, at: int, until: int) -> None:
    """Begin a session, and delete those that are over.

    Parameters:
        user_id: `None`: for the one-time link.
        at, until: ms since the epoch.
    """
    connection.execute(delete(sessions).where(sessions.c.until <= at))
    connection.execute(insert(sessions).values(digest=digest, user_id=user_id, at=at, until=until))


def find_session(connection: Connection, digest: bytes, now: int) -> SessionRow | None:
    """Return a session's user; `None` if there is no session, or it is over."""
    whose = sessions.outerjoin(users, users.c.id == sessions.c.user_id)
    found = select(*(users.c[name] for name in SessionRow._fields)).select_from(whose)
    return read_one(connection, found.where(sessions.c.digest == digest, sessions.c.until > now), SessionRow)


def end_session(connection: Connection, digest: bytes) -> None:
    """End one."""
    connection.execute(delete(sessions).where(sessions.c.digest == digest))


def end_sessions_of_user(connection: Connection, user_id: int) -> int:
    """End all sessions of a user; return how many there were."""
    return int(connection.execute(delete(sessions).where(sessions.c.user_id == user_id)).rowcount)


class IssuedSessionRow(NamedTuple):
    """The person of a session that an issuer signed in."""

    name: str
    role: str
    topics: str
    consumer_groups: str

    @property
    def scope(self) -> LetterScope:
        """Return the letters that the person sees."""
        return LetterScope.from_columns(self.topics, self.consumer_groups)


def add_issued_session(
    connection: Connection, digest: bytes, issuer: str, row: IssuedSessionRow, at: int, until: int
) -> None:
    """Begin a session, and delete those that are over.

    Parameters:
        at, until: ms since the epoch.
    """
    connection.execute(delete(issued).where(issued.c.until <= at))
    values = {"digest": digest, "issuer": issuer, "at": at, "until": until}
    connection.execute(insert(issued).values(values | row._asdict()))


def find_issued_session(connection: Connection, digest: bytes, issuer: str, now: int) -> IssuedSessionRow | None:
    """Return the person of a session; `None` if the issuer has no such session, or it is over."""
    found = select(*(issued.c[name] for name in IssuedSessionRow._fields))
    found = found.where(issued.c.digest == digest, issued.c.issuer == issuer)
    return read_one(connection, found.where(issued.c.until > now), IssuedSessionRow)


def end_issued_session(connection: Connection, digest: bytes) -> None:
    """End one."""
    connection.execute(delete(issued).where(issued.c.digest == digest))


def end_issued_sessions(connection: Connection) -> int:
    """End all sessions of issuers; return how many there were."""
    return int(connection.execute(delete(issued)).rowcount)


class ApiToken(NamedTuple):
    """An API token, without its secret.

    Attributes:
        name: its purpose.
        role: "viewer", "operator" or "admin".
        at, until: when it was made, and when it ends, ms since the epoch.
        by: the actor who made it.
        used_at: when it was last used, to a minute; `None`: never.
        topics, consumer_groups: the columns of its scope.
    """

    id: int
    name: str
    role: str
    at: int
    by: str
    until: int
    used_at: int | None
    topics: str = ""
    consumer_groups: str = ""

    @property
    def scope(self) -> LetterScope:
        """Return the letters that it sees."""
        return LetterScope.from_columns(self.topics, self.consumer_groups)


#: With what the audit log begins the name of a token; no user has it, since their names have no spaces.
TOKEN_PREFIX: Final = "token "
#: Most tokens that were made by a token each, of which the first one's maker is found.
_TOKENS_IN_A_ROW: Final = 10
_SELECT_TOKEN = select(*(tokens.c[name] for name in ApiToken._fields))


def add_token(
    connection: Connection, digest: bytes, name: str, role: str, at: int, by: str, until: int, scope: LetterScope
) -> ApiToken:
    """Add one."""
    row = {"digest": digest, "name": name, "role": role, "at": at, "by": by, "until": until} | scope.stored
    id_ = connection.execute(insert(tokens).values(row).returning(tokens.c.id)).scalar_one()
    return ApiToken(int(id_), name, role, at, by, until, None, **scope.stored)


def list_tokens(connection: Connection) -> list[ApiToken]:
    """Return all tokens by name, those that have ended too."""
    return [ApiToken(*row) for row in connection.execute(_SELECT_TOKEN.order_by(tokens.c.name, tokens.c.id))]


def hold_token(connection: Connection, id_: int) -> ApiToken | None:
    """Return the token of an id, locked until the transaction ends."""
    return read_one(connection, _SELECT_TOKEN.where(tokens.c.id == id_).with_for_update(), ApiToken)


def find_living_token(connection: Connection, name: str, now: int) -> ApiToken | None:
    """Return the token of a name that has not ended."""
    return read_one(connection, _SELECT_TOKEN.where(tokens.c.name == name, tokens.c.until > now), ApiToken)


def find_person(connection: Connection, by: str) -> str:
    """Return the person behind an actor of the audit log: of an API token, who made it."""
    for _ in range(_TOKENS_IN_A_ROW):
        prefix, _, name = by.partition(" ")
        if f"{prefix} " != TOKEN_PREFIX:
            break
        found = select(tokens.c.by).where(tokens.c.name == name).order_by(tokens.c.id.desc()).limit(1)
        if (maker := connection.execute(found).scalar()) is None:
            break
        by = str(maker)
    return by


def find_token(connection: Connection, digest: bytes, now: int) -> ApiToken | None:
    """Return the token of a secret's hash; `None` if there is none, or it has ended."""
    return read_one(connection, _SELECT_TOKEN.where(tokens.c.digest == digest, tokens.c.until > now), ApiToken)


def note_token_use(connection: Connection, id_: int, at: int) -> None:
    """Note when a token was used."""
    connection.execute(update(tokens).where(tokens.c.id == id_).values(used_at=at))


def remove_token(connection: Connection, id_: int) -> None:
    """Remove one."""
    connection.execute(delete(tokens).where(tokens.c.id == id_))
