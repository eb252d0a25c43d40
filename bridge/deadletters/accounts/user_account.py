"""Users of the console: roles, names, passwords and password links, and what an admin does with them.

An admin remains, always.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self

from bridge.deadletters.db import account_table, audit_table, sql
from bridge.deadletters.db.account_table import User, UserSecret
from bridge.deadletters.db.database import Connection, Database
from bridge.errors import UserChanged, UserRefused


class Role(IntEnum):
    """What somebody may: each all that those before may."""

    NOBODY = 0
    """Not signed in: signing in, and what every page needs."""
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    def __str__(self) -> str:
        """As it is written: `operator`."""
        return self.name.lower()

    @classmethod
    def read(cls, word: str) -> "Role | None":
        """The role that somebody can be given by this word; `None`: there is none."""
        return next((role for role in cls if role and str(role) == word), None)


#: Ms for which it opens something.
LINK_LASTS: Final = 3 * 86_400_000
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT: Final = re.compile(r"link\$([0-9a-f]{64})\$([0-9]{1,16})")


class PasswordLink(NamedTuple):
    """One as it is kept, in the place of a password: by a hash, so that a copy of the database opens nothing.

    Attributes:
        until: ms since the epoch.
    """

    digest: str
    until: int

    @classmethod
    def of(cls, token: str, now: int) -> Self | None:
        """One that is made now; `None`: the token is none, or may be guessed."""
        return cls(_digest_token(token), now + LINK_LASTS) if _TOKEN.fullmatch(token) else None

    @classmethod
    def read(cls, kept: str) -> Self | None:
        """The one that is kept; `None`: there is a password."""
        found = _KEPT.fullmatch(kept)
        return cls(found[1], int(found[2])) if found else None

    def written(self) -> str:
        """As it is kept: no password fits it."""
        return f"link${self.digest}${self.until}"

    def opens(self, token: str, now: int) -> bool:
        """Whether it is opened by this token, still."""
        return hmac.compare_digest(self.digest, _digest_token(token)) and now < self.until


def _digest_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


#: In the trail: what is done with users.
AUDIT_KIND: Final = "user"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}")


@dataclass(frozen=True)
class Users:
    """Who may sign in to the console. Every method raises DeskUnavailable where the database does not answer.

    Passwords come and go as hashes: what they are made with is the console's (`bridge.console.auth.passwords`).
    """

    database: Database

    def add(self, name: str, role: Role, password: str, by: str) -> None:
        """Add somebody.

        Parameters:
            password: its hash.

        Raises:
            UserRefused: the name is none, or somebody's already.
        """
        name = normalise_name(name)
        with self.database.writing() as connection:
            if account_table.hold_user_of_name(connection, name):
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            at = sql.read_clock(connection)
            account_table.add_user(connection, name, str(role), password, at, by)
            audit_table.write_entry(connection, at, by, AUDIT_KIND, f"{name} added, as {role}")

    def all(self) -> list[User]:
        """All of them, by name."""
        with self.database.reading() as connection:
            return account_table.list_users(connection)

    def any(self) -> bool:
        """Whether there is one."""
        with self.database.reading() as connection:
            return account_table.has_users(connection)

    def secret(self, name: str) -> UserSecret | None:
        """By what a user is known, to try a password on; `None`: there is no such user."""
        made = name.strip().lower()
        if not _NAME.fullmatch(made):
            return None
        with self.database.reading() as connection:
            return account_table.read_user_secret(connection, made)

    def give_role(self, name: str, role: Role, by: str) -> None:
        """Change what somebody may; they are signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_table.set_user_role(connection, user.id, str(role))
            account_table.end_sessions_of_user(connection, user.id)
            audit_table.write_entry(
                connection, sql.read_clock(connection), by, AUDIT_KIND, f"{user.name} is {role} now, was {user.role}"
            )

    def give_password(self, name: str, password: str, by: str) -> None:
        """Change somebody's password, to one of this hash; they are signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_table.set_user_password(connection, user.id, password)
            account_table.end_sessions_of_user(connection, user.id)
            audit_table.write_entry(
                connection, sql.read_clock(connection), by, AUDIT_KIND, f"{user.name} has another password"
            )

    def sign_out_everywhere(self, name: str, by: str) -> None:
        """End all of somebody's sessions: one may be in other hands.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_table.end_sessions_of_user(connection, user.id)
            audit_table.write_entry(
                connection, sql.read_clock(connection), by, AUDIT_KIND, f"{user.name} signed out everywhere"
            )

    def rehashed(self, secret: UserSecret, password: str) -> UserSecret:
        """Keep the same password by a better hash; nobody is signed out, and one that was changed meanwhile stays."""
        with self.database.writing() as connection:
            if account_table.hold_unchanged_user(connection, secret):
                account_table.set_user_password(connection, secret.id, password)
        return secret._replace(password=password)

    def remove(self, name: str, by: str) -> None:
        """Remove somebody, with all their sessions; what they did stays in the trail.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_table.remove_user(connection, user.id)
            audit_table.write_entry(
                connection, sql.read_clock(connection), by, AUDIT_KIND, f"{user.name} removed, was {user.role}"
            )


def normalise_name(name: str) -> str:
    """A user's name as it is kept.

    Raises:
        UserRefused: it is none.
    """
    made = name.strip().lower()
    if not _NAME.fullmatch(made):
        raise UserRefused(
            "A user's name is of letters a to z, digits and . _ @ + -, begins with a letter or a digit, and has 100 "
            "characters at most: nothing was changed."
        )
    return made


def _require_user(connection: Connection, name: str) -> User:
    found = account_table.hold_user_of_name(connection, normalise_name(name))
    if found is None:
        raise UserRefused(f"There is no user {name}: `bridge deadletters users` lists them.")
    return found


_GONE: Final = "There is no such user any more: somebody has removed them."


@dataclass(frozen=True)
class UserAdministration:
    """Every method raises DeskUnavailable where the database does not answer, and UserChanged where there is no such
    user any more.

    Parameters of the methods: `token` is of the link by which somebody chooses a password, `by` the admin's name.
    """

    database: Database

    def invite(self, name: str, role: Role, token: str, by: str) -> User:
        """Add somebody, who chooses a password by a link; the same once more changes nothing.

        Raises:
            UserRefused: the name is none, or somebody's already; or the first user would be no admin.
        """
        name = normalise_name(name)
        with self.database.writing() as connection:
            found, at = account_table.hold_user_of_name(connection, name), sql.read_clock(connection)
            link = _build_link(token, at)
            if found is not None:
                if found.role == str(role) and _is_opened_by(connection, found, token, at):
                    return found
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            if role is not Role.ADMIN and not account_table.has_users(connection):
                raise UserRefused("The first user is an admin, who adds the others: nothing was changed.")
            account_table.add_user(connection, name, str(role), link.written(), at, by)
            audit_table.write_entry(
                connection, at, by, AUDIT_KIND, f"{name} added, as {role}, to choose a password by a link"
            )
            return _require_unchanged_user(connection, account_table.hold_user_of_name(connection, name))

    def one(self, id_: int) -> User:
        """A user."""
        with self.database.reading() as connection:
            return _require_unchanged_user(connection, account_table.read_user(connection, id_))

    def give_role(self, id_: int, was: str, role: Role, by: str) -> None:
        """Change what somebody may, if it is still what was seen; they are signed out everywhere.

        Raises:
            UserChanged: somebody else has given them another role since.
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = _require_unchanged_user(connection, account_table.hold_user(connection, id_))
            if user.role == str(role):
                return
            if user.role != was:
                raise UserChanged(f"{user.name} is {user.role} by now. {_read_last_entry(connection, user.name)}")
            _is_admin_left(connection, user)
            account_table.set_user_role(connection, id_, str(role))
            account_table.end_sessions_of_user(connection, id_)
            _write_audit_entry(connection, by, f"{user.name} is {role} now, was {user.role}")

    def new_link(self, id_: int, token: str, by: str) -> User:
        """Have somebody choose another password: the one until now is worth nothing, and they are signed out.

        Raises:
            UserRefused: no admin would be left who can sign in.
        """
        with self.database.writing() as connection:
            user, at = (
                _require_unchanged_user(connection, account_table.hold_user(connection, id_)),
                sql.read_clock(connection),
            )
            if not _is_opened_by(connection, user, token, at):
                _is_admin_left(connection, user)
                account_table.set_user_password(connection, id_, _build_link(token, at).written())
                account_table.end_sessions_of_user(connection, id_)
                _write_audit_entry(connection, by, f"{user.name} chooses another password by a link")
            return user

    def sign_out(self, id_: int, by: str) -> None:
        """End all of somebody's sessions; nothing is said where they have none."""
        with self.database.writing() as connection:
            user = _require_unchanged_user(connection, account_table.hold_user(connection, id_))
            if account_table.end_sessions_of_user(connection, id_):
                _write_audit_entry(connection, by, f"{user.name} signed out everywhere")

    def remove(self, id_: int, by: str) -> None:
        """Remove somebody, with all their sessions; nothing where they are gone. What they did stays in the trail.

        Raises:
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = account_table.hold_user(connection, id_)
            if user is not None:
                _is_admin_left(connection, user)
                account_table.remove_user(connection, id_)
                _write_audit_entry(connection, by, f"{user.name} removed, was {user.role}")

    def invited(self, id_: int, token: str) -> str | None:
        """Who chooses a password by this link; `None`: it was used already, is over, or is none."""
        with self.database.reading() as connection:
            user = account_table.read_user(connection, id_)
            fits = user is not None and _is_opened_by(connection, user, token, sql.read_clock(connection))
            return user.name if user and fits else None

    def choose(self, id_: int, token: str, password: str) -> bool:
        """Take a password that was chosen by a link, which is used up by this; whether it was so.

        Parameters:
            password: its hash.
        """
        with self.database.writing() as connection:
            user = account_table.hold_user(connection, id_)
            if user is None or not _is_opened_by(connection, user, token, sql.read_clock(connection)):
                return False
            account_table.set_user_password(connection, id_, password)
            _write_audit_entry(connection, user.name, f"{user.name} has chosen a password")
            return True


def _require_unchanged_user(connection: Connection, found: User | None) -> User:
    if found is None:
        raise UserChanged(_GONE)
    return found


def _build_link(token: str, at: int) -> PasswordLink:
    made = PasswordLink.of(token, at)
    if made is None:
        raise UserRefused("This form has no link of the console's: load the page again. Nothing was changed.")
    return made


def _is_opened_by(connection: Connection, user: User, token: str, at: int) -> bool:
    secret: UserSecret | None = account_table.read_user_secret(connection, user.name)
    link = PasswordLink.read(secret.password) if secret else None
    return link is not None and link.opens(token, at)


def _is_admin_left(connection: Connection, user: User) -> None:
    """Somebody else is left who may all, and has a password; held, so that two do not take it of each other."""
    if user.role == str(Role.ADMIN) and not account_table.hold_admins(connection) - {user.id}:
        raise UserRefused(
            f"{user.name} is the last admin with a password: make somebody else one first. Nothing was changed."
        )


def _read_last_entry(connection: Connection, name: str) -> str:
    """What was done last with somebody."""
    acts = audit_table.read_entries(connection, "", (AUDIT_KIND,), None, 200)
    last = next((act for act in acts if act.said.startswith(f"{name} ")), None)
    return f"{last.said}, by {last.by}. " if last else ""


def _write_audit_entry(connection: Connection, by: str, said: str) -> None:
    audit_table.write_entry(connection, sql.read_clock(connection), by, AUDIT_KIND, said)
