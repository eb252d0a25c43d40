"""Sessions of users and of people whom an OpenID Connect issuer signed in, kept by a hash of the cookie so that a
restart signs nobody out.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.accounts.activity_kinds import SIGN_IN_KIND, USER_KIND
from bridge.deadletters.accounts.user_account import Role, describe_scope
from bridge.deadletters.db import account_rows, audit_rows, sql
from bridge.deadletters.db.account_rows import IssuedSessionRow, UserSecret
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope

#: Ms after which a session ends and the person signs in again.
SESSION_LASTS: Final = 12 * 3_600_000
#: The actor in the audit log for the one-time link of a console without users.
BY_LINK: Final = "one-time link"


class SessionAccount(NamedTuple):
    """The account of a session: its name, its current role, and the letters that it sees."""

    name: str
    role: Role
    scope: LetterScope = EVERYTHING


@dataclass(frozen=True)
class UserSessions:
    """The sessions of users. Every method raises DeskUnavailable if the database does not answer.

    Parameters of the methods: `digest` is of a cookie, `now` in ms since the epoch.
    """

    database: Database

    def begin(self, digest: bytes, secret: UserSecret, now: int) -> bool:
        """Begin a session for a user whose password was right; return false if the user changed meanwhile."""
        with self.database.writing() as connection:
            still = account_rows.hold_unchanged_user(connection, secret)
            if still:
                account_rows.add_session(connection, digest, secret.id, now, now + SESSION_LASTS)
            return still

    def begin_by_link(self, digest: bytes, now: int) -> bool:
        """Begin a session by the one-time link; return false if there are users."""
        with self.database.writing() as connection:
            alone = not account_rows.has_users(connection)
            if alone:
                account_rows.add_session(connection, digest, None, now, now + SESSION_LASTS)
            return alone

    def who(self, digest: bytes, now: int) -> SessionAccount | None:
        """Return the account of the session's user; `None` if the session does not exist or is over."""
        with self.database.reading() as connection:
            found = account_rows.find_session(connection, digest, now)
            if found is None:
                return None
            if found.name is not None:
                return SessionAccount(found.name, Role.read(str(found.role)) or Role.NOBODY, found.scope)
            return None if account_rows.has_users(connection) else SessionAccount(BY_LINK, Role.ADMIN)

    def end(self, digest: bytes) -> None:
        """Sign out."""
        with self.database.writing() as connection:
            account_rows.end_session(connection, digest)


class IssuedPerson(NamedTuple):
    """A person whom an issuer has signed in.

    Attributes:
        subject: the issuer's permanent id of the person.
        name: for the audit log.
        scope: the letters that the person sees.
    """

    issuer: str
    subject: str
    name: str
    role: Role
    scope: LetterScope = EVERYTHING


@dataclass(frozen=True)
class IssuedSessions:
    """The sessions of an issuer. Every method raises DeskUnavailable if the database does not answer.

    Parameters of the methods: `digest` is of a cookie, `now` in ms since the epoch.
    """

    database: Database

    def begin(self, digest: bytes, person: IssuedPerson, now: int) -> None:
        """Begin a session, with an audit entry."""
        with self.database.writing() as connection:
            row = IssuedSessionRow(person.name, str(person.role), **person.scope.stored)
            account_rows.add_issued_session(connection, digest, person.issuer, row, now, now + SESSION_LASTS)
            sees = describe_scope(person.scope)
            said = f"signed in by {person.issuer}, as {person.role}{sees}; there: {person.subject}"
            audit_rows.write_entry(connection, sql.read_clock(connection), person.name, SIGN_IN_KIND, said)

    def who(self, digest: bytes, issuer: str, now: int) -> SessionAccount | None:
        """Return the account of the session's person; `None` if the session does not exist or is over.

        Parameters:
            issuer: the configured one: sessions of another are over.
        """
        with self.database.reading() as connection:
            found = account_rows.find_issued_session(connection, digest, issuer, now)
        return found and SessionAccount(found.name, Role.read(found.role) or Role.NOBODY, found.scope)

    def end(self, digest: bytes) -> None:
        """Sign out."""
        with self.database.writing() as connection:
            account_rows.end_issued_session(connection, digest)

    def end_all(self, by: str) -> None:
        """End all sessions of the issuer: the roles there may have changed."""
        with self.database.writing() as connection:
            count = account_rows.end_issued_sessions(connection)
            said = f"all whom an issuer had signed in are signed out: {count} sessions"
            audit_rows.write_entry(connection, sql.read_clock(connection), by, USER_KIND, said)
