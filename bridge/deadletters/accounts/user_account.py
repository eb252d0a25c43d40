"""Users of the console: roles, names, passwords and password links, and what an admin does with them.

An admin remains, always.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self

from bridge.deadletters.accounts.activity_kinds import USER_KIND
from bridge.deadletters.db import account_rows, audit_rows, sql
from bridge.deadletters.db.account_rows import User, UserSecret
from bridge.deadletters.db.audit_rows import EntryFilter
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.errors import UserChanged, UserRefused


class Role(IntEnum):
    """A role, ordered: each may do all that those before may."""

    NOBODY = 0
    """Not signed in: signing in, and what every page needs."""
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    def __str__(self) -> str:
        """Return the word: `operator`."""
        return self.name.lower()

    @classmethod
    def read(cls, word: str) -> "Role | None":
        """Return the role of this word; `None` if no user can be given it."""
        return next((role for role in cls if role and str(role) == word), None)


def describe_scope(scope: LetterScope) -> str:
    """Return the words for an account's scope in the audit log, after its role; "" if it sees everything."""
    return f", for {scope}" if scope else ""


#: Ms for which a link is valid.
LINK_LASTS: Final = 3 * 86_400_000
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT: Final = re.compile(r"link\$([0-9a-f]{64})\$([0-9]{1,16})")


class PasswordLink(NamedTuple):
    """A link to choose a password, stored as a hash in the place of the password.

    Attributes:
        until: ms since the epoch.
    """

    digest: str
    until: int

    @classmethod
    def for_token(cls, token: str, now: int) -> Self | None:
        """Return a link of this token; `None` if the token is none, or may be guessed."""
        return cls(_digest_token(token), now + LINK_LASTS) if _TOKEN.fullmatch(token) else None

    @classmethod
    def read(cls, kept: str) -> Self | None:
        """Return the link that is stored; `None` if a password is."""
        found = _KEPT.fullmatch(kept)
        return cls(found[1], int(found[2])) if found else None

    def written(self) -> str:
        """Return the text to store, which no password matches."""
        return f"link${self.digest}${self.until}"

    def opens(self, token: str, now: int) -> bool:
        """Return whether this token opens the link now."""
        return hmac.compare_digest(self.digest, _digest_token(token)) and now < self.until


def _digest_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}")


@dataclass(frozen=True)
class Users:
    """The users of the console. Every method raises DeskUnavailable if the database does not answer.

    Passwords are hashes, which `bridge.console.auth.passwords` makes.
    """

    database: Database

    def add(self, name: str, role: Role, password: str, by: str, scope: LetterScope = EVERYTHING) -> None:
        """Add a user.

        Parameters:
            password: its hash.
            scope: the letters that it sees.

        Raises:
            UserRefused: the name is none, or somebody's already.
        """
        name = normalise_name(name)
        with self.database.writing() as connection:
            if account_rows.hold_user_of_name(connection, name):
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            account_rows.add_user(connection, name, str(role), password, sql.read_clock(connection), by, scope)
            _write_audit_entry(connection, by, f"{name} added, as {role}{describe_scope(scope)}")

    def all(self) -> list[User]:
        """Return all users by name."""
        with self.database.reading() as connection:
            return account_rows.list_users(connection)

    def any(self) -> bool:
        """Return whether there are users."""
        with self.database.reading() as connection:
            return account_rows.has_users(connection)

    def secret(self, name: str) -> UserSecret | None:
        """Return a user's password hash; `None` if there is no such user."""
        made = name.strip().lower()
        if not _NAME.fullmatch(made):
            return None
        with self.database.reading() as connection:
            return account_rows.read_user_secret(connection, made)

    def give_role(self, name: str, role: Role, by: str) -> None:
        """Change the role of a user, who is signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_rows.set_user_role(connection, user.id, str(role))
            account_rows.end_sessions_of_user(connection, user.id)
            _write_audit_entry(connection, by, f"{user.name} is {role} now, was {user.role}")

    def give_scope(self, name: str, scope: LetterScope, by: str) -> None:
        """Change the letters that a user sees, who is signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            _give_scope(connection, _require_user(connection, name), scope, by)

    def give_password(self, name: str, password: str, by: str) -> None:
        """Change the password hash of a user, who is signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_rows.set_user_password(connection, user.id, password)
            account_rows.end_sessions_of_user(connection, user.id)
            _write_audit_entry(connection, by, f"{user.name} has another password")

    def sign_out_everywhere(self, name: str, by: str) -> None:
        """End all sessions of a user.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_rows.end_sessions_of_user(connection, user.id)
            _write_audit_entry(connection, by, f"{user.name} signed out everywhere")

    def rehashed(self, secret: UserSecret, password: str) -> UserSecret:
        """Store a better hash of the same password, unless the password was changed meanwhile; nobody is signed out."""
        with self.database.writing() as connection:
            if account_rows.hold_unchanged_user(connection, secret):
                account_rows.set_user_password(connection, secret.id, password)
        return secret._replace(password=password)

    def remove(self, name: str, by: str) -> None:
        """Remove a user and all sessions; the audit log keeps the user's actions.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _require_user(connection, name)
            account_rows.remove_user(connection, user.id)
            _write_audit_entry(connection, by, f"{user.name} removed, was {user.role}")


def normalise_name(name: str) -> str:
    """Return a user's name as it is stored.

    Raises:
        UserRefused: the name is invalid.
    """
    made = name.strip().lower()
    if not _NAME.fullmatch(made):
        raise UserRefused(
            "A user's name is of letters a to z, digits and . _ @ + -, begins with a letter or a digit, and has 100 "
            "characters at most: nothing was changed."
        )
    return made


def _require_user(connection: Connection, name: str) -> User:
    found = account_rows.hold_user_of_name(connection, normalise_name(name))
    if found is None:
        raise UserRefused(f"There is no user {name}: `bridge deadletters users` lists them.")
    return found


@dataclass(frozen=True)
class UserAdministration:
    """The administration of users. Every method raises DeskUnavailable if the database does not answer, and UserChanged
    if the user was removed.

    Parameters of the methods: `token` is of the link to choose a password, `by` is the admin's name.
    """

    database: Database

    def invite(self, name: str, role: Role, token: str, by: str, scope: LetterScope = EVERYTHING) -> User:
        """Add a user who chooses a password by a link; a repetition changes nothing.

        Raises:
            UserRefused: the name is none, or somebody's already; or the first user would be no admin.
        """
        name = normalise_name(name)
        with self.database.writing() as connection:
            found, at = account_rows.hold_user_of_name(connection, name), sql.read_clock(connection)
            link = _build_link(token, at)
            if found is not None:
                if (found.role, found.scope) == (str(role), scope) and _is_opened_by(connection, found, token, at):
                    return found
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            if (role is not Role.ADMIN or scope) and not account_rows.has_users(connection):
                raise UserRefused(
                    "The first user is an admin who sees everything, and adds the others: nothing was changed."
                )
            account_rows.add_user(connection, name, str(role), link.written(), at, by, scope)
            said = f"{name} added, as {role}{describe_scope(scope)}, to choose a password by a link"
            _write_audit_entry(connection, by, said)
            return _require_user(connection, name)

    def one(self, id_: int) -> User:
        """Return a user."""
        with self.database.reading() as connection:
            return _require_known_user(account_rows.read_user(connection, id_))

    def give_role(self, id_: int, was: str, role: Role, by: str) -> None:
        """Change the role of a user if it is still `was`; the user is signed out everywhere.

        Raises:
            UserChanged: somebody has changed the role since.
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = _hold_user(connection, id_)
            if user.role == str(role):
                return
            if user.role != was:
                raise UserChanged(f"{user.name} is {user.role} by now. {_describe_last_entry(connection, user.name)}")
            _require_other_admin(connection, user)
            account_rows.set_user_role(connection, id_, str(role))
            account_rows.end_sessions_of_user(connection, id_)
            _write_audit_entry(connection, by, f"{user.name} is {role} now, was {user.role}")

    def give_scope(self, id_: int, was: LetterScope, scope: LetterScope, by: str) -> None:
        """Change the letters that a user sees, if these are still `was`; the user is signed out everywhere.

        Raises:
            UserChanged: somebody has changed it since.
            UserRefused: no admin who sees everything would be left.
        """
        with self.database.writing() as connection:
            user = _hold_user(connection, id_)
            if user.scope == scope:
                return
            if user.scope != was:
                raise UserChanged(
                    f"{user.name} sees {user.scope} by now. {_describe_last_entry(connection, user.name)}"
                )
            if scope:
                _require_other_admin(connection, user)
            _give_scope(connection, user, scope, by)

    def new_link(self, id_: int, token: str, by: str) -> User:
        """Have a user choose another password: the old one is void, and all sessions end.

        Raises:
            UserRefused: no admin would be left who can sign in.
        """
        with self.database.writing() as connection:
            user, at = _hold_user(connection, id_), sql.read_clock(connection)
            if not _is_opened_by(connection, user, token, at):
                _require_other_admin(connection, user)
                account_rows.set_user_password(connection, id_, _build_link(token, at).written())
                account_rows.end_sessions_of_user(connection, id_)
                _write_audit_entry(connection, by, f"{user.name} chooses another password by a link")
            return user

    def sign_out(self, id_: int, by: str) -> None:
        """End all sessions of a user; no audit entry if there are none."""
        with self.database.writing() as connection:
            user = _hold_user(connection, id_)
            if account_rows.end_sessions_of_user(connection, id_):
                _write_audit_entry(connection, by, f"{user.name} signed out everywhere")

    def remove(self, id_: int, by: str) -> None:
        """Remove a user and all sessions, if it exists; the audit log keeps the user's actions.

        Raises:
            UserRefused: no admin would be left.
        """
        with self.database.writing() as connection:
            user = account_rows.hold_user(connection, id_)
            if user is not None:
                _require_other_admin(connection, user)
                account_rows.remove_user(connection, id_)
                _write_audit_entry(connection, by, f"{user.name} removed, was {user.role}")

    def invited(self, id_: int, token: str) -> str | None:
        """Return the name of the user who chooses a password by this link; `None` if it is invalid or over."""
        with self.database.reading() as connection:
            user = account_rows.read_user(connection, id_)
            fits = user is not None and _is_opened_by(connection, user, token, sql.read_clock(connection))
            return user.name if user and fits else None

    def choose(self, id_: int, token: str, password: str) -> bool:
        """Store the password that was chosen by a link, once; return whether the link was valid.

        Parameters:
            password: its hash.
        """
        with self.database.writing() as connection:
            user = account_rows.hold_user(connection, id_)
            if user is None or not _is_opened_by(connection, user, token, sql.read_clock(connection)):
                return False
            account_rows.set_user_password(connection, id_, password)
            _write_audit_entry(connection, user.name, f"{user.name} has chosen a password")
            return True


def _give_scope(connection: Connection, user: User, scope: LetterScope, by: str) -> None:
    account_rows.set_user_scope(connection, user.id, scope)
    account_rows.end_sessions_of_user(connection, user.id)
    _write_audit_entry(connection, by, f"{user.name} sees {scope} now, saw {user.scope}")


def _hold_user(connection: Connection, id_: int) -> User:
    return _require_known_user(account_rows.hold_user(connection, id_))


def _require_known_user(found: User | None) -> User:
    if found is None:
        raise UserChanged("There is no such user any more: somebody has removed it.")
    return found


def _build_link(token: str, at: int) -> PasswordLink:
    made = PasswordLink.for_token(token, at)
    if made is None:
        raise UserRefused("This form has no link of the console's: load the page again. Nothing was changed.")
    return made


def _is_opened_by(connection: Connection, user: User, token: str, at: int) -> bool:
    secret: UserSecret | None = account_rows.read_user_secret(connection, user.name)
    link = PasswordLink.read(secret.password) if secret else None
    return link is not None and link.opens(token, at)


def _require_other_admin(connection: Connection, user: User) -> None:
    """Require another admin with a password, and lock the admins: two must not remove each other's last one."""
    if user.role == str(Role.ADMIN) and not user.scope and not account_rows.hold_admins(connection) - {user.id}:
        raise UserRefused(
            f"{user.name} is the last admin with a password: make somebody else one first. Nothing was changed."
        )


def _describe_last_entry(connection: Connection, name: str) -> str:
    """Return a sentence with the last audit entry about a user."""
    acts = audit_rows.read_entries(connection, EntryFilter(what=(USER_KIND,)), None, 200)
    last = next((act for act in acts if act.said.startswith(f"{name} ")), None)
    return f"{last.said}, by {last.by}. " if last else ""


def _write_audit_entry(connection: Connection, by: str, said: str) -> None:
    audit_rows.write_entry(connection, sql.read_clock(connection), by, USER_KIND, said)
