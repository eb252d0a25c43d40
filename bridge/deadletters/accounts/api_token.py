"""API tokens: made, found and revoked, each with an audit entry."""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.accounts.activity_kinds import TOKEN_KIND
from bridge.deadletters.accounts.user_account import Role, describe_scope
from bridge.deadletters.db import account_rows, audit_rows, sql
from bridge.deadletters.db.account_rows import ApiToken
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.letter_scope import EVERYTHING, LetterScope
from bridge.errors import DeskUnavailable, TokenRefused
from bridge.formats.text_forms import format_time

#: The prefix of every token, by which secret scanners recognise it.
PREFIX: Final = "bdl_"
#: Days until a token ends by default, and at most.
DAYS: Final = 90
MOST_DAYS: Final = 366
_DAY: Final = 86_400_000
#: Ms between two notes of when a token was used.
NOTED_EVERY: Final = 60_000
#: Most characters of a name.
LONGEST: Final = 100


def digest_secret(secret: str) -> bytes:
    """Return the hash by which a token is found; its 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def name_token_user(token: ApiToken) -> str:
    """Return the actor's name in the audit log."""
    return f"{account_rows.TOKEN_PREFIX}{token.name}"


@dataclass(frozen=True)
class ApiTokens:
    """The API tokens. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def make(
        self, name: str, role: Role, by: str, days: int = DAYS, scope: LetterScope = EVERYTHING
    ) -> tuple[ApiToken, str]:
        """Create a token.

        Parameters:
            name: its purpose, by which the audit log names the actor.
            scope: the letters that it sees, for good: another scope takes another token.

        Returns:
            The token, and its secret, which is stored nowhere.

        Raises:
            TokenRefused: the name is invalid or in use, or the token would last too long.
        """
        name = _check_token_request(name, days)
        secret = PREFIX + secrets.token_urlsafe(32)
        with self.database.writing() as connection:
            at = sql.read_clock(connection)
            if account_rows.find_living_token(connection, name, at):
                raise TokenRefused(f"There is a token {name} already: revoke it, or choose another name.")
            until = at + days * _DAY
            made = account_rows.add_token(connection, digest_secret(secret), name, str(role), at, by, until, scope)
            said = f"{name} made, as {role}{describe_scope(scope)}, until {format_time(until / 1000)}"
            audit_rows.write_entry(connection, at, by, TOKEN_KIND, said)
        return made, secret

    def all(self) -> list[ApiToken]:
        """Return all tokens by name, those that have ended too."""
        with self.database.reading() as connection:
            return account_rows.list_tokens(connection)

    def who(self, secret: str, now: int) -> ApiToken | None:
        """Return the token of a secret; `None` if there is none, or it has ended or was revoked.

        Parameters:
            now: ms since the epoch.
        """
        with self.database.reading() as connection:
            found = account_rows.find_token(connection, digest_secret(secret), now)
        if found is not None and now - (found.used_at or 0) >= NOTED_EVERY:
            self._used(found.id, now)
        return found

    def revoke(self, id_: int, by: str) -> ApiToken:
        """Revoke a token at once; the audit log keeps its actions.

        Raises:
            TokenRefused: there is no such token.
        """
        with self.database.writing() as connection:
            token = account_rows.hold_token(connection, id_)
            if token is None:
                raise TokenRefused(f"There is no token {id_}: `bridge deadletters users tokens` lists them.")
            account_rows.remove_token(connection, id_)
            audit_rows.write_entry(
                connection, sql.read_clock(connection), by, TOKEN_KIND, f"{token.name} revoked, was {token.role}"
            )
            return token

    def _used(self, id_: int, now: int) -> None:
        try:
            with self.database.writing() as connection:
                account_rows.note_token_use(connection, id_, now)
        except DeskUnavailable:
            # A read-only database must not keep readers out.
            return


def _check_token_request(name: str, days: int) -> str:
    made = " ".join(name.split())
    if not made or len(made) > LONGEST or not made.isprintable():
        raise TokenRefused(f"A token's name says its purpose, in {LONGEST} characters at most: nothing was made.")
    if not 1 <= days <= MOST_DAYS:
        raise TokenRefused(f"A token lasts 1 to {MOST_DAYS} days, and not {days:,}: nothing was made.")
    return made
