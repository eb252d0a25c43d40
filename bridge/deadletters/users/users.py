"""The desk's users: added, changed and removed, each time with a line in the trail."""

import re
from dataclasses import dataclass
from typing import Final

from bridge.deadletters.store import clock, sessions, trail, users
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.users import Secret, User
from bridge.deadletters.users.role import Role
from bridge.errors import UserRefused

#: In the trail: what is done with users.
WHAT: Final = "user"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,99}")


@dataclass(frozen=True)
class Users:
    """Who may sign in to the console. Every method raises DeskUnavailable where the database does not answer.

    Passwords come and go as hashes: what they are made with is the console's (`bridge.web.passwords`).
    """

    database: Database

    def add(self, name: str, role: Role, password: str, by: str) -> None:
        """Add somebody.

        Parameters:
            password: its hash.

        Raises:
            UserRefused: the name is none, or somebody's already.
        """
        name = named(name)
        with self.database.writing() as connection:
            if users.find(connection, name):
                raise UserRefused(f"There is a user {name} already: nothing was changed.")
            at = clock.now(connection)
            users.add(connection, name, str(role), password, at, by)
            trail.write(connection, at, by, WHAT, f"{name} added, as {role}")

    def all(self) -> list[User]:
        """All of them, by name."""
        with self.database.reading() as connection:
            return users.everybody(connection)

    def any(self) -> bool:
        """Whether there is one."""
        with self.database.reading() as connection:
            return users.is_any(connection)

    def secret(self, name: str) -> Secret | None:
        """By what a user is known, to try a password on; `None`: there is no such user."""
        made = name.strip().lower()
        if not _NAME.fullmatch(made):
            return None
        with self.database.reading() as connection:
            return users.secret(connection, made)

    def give_role(self, name: str, role: Role, by: str) -> None:
        """Change what somebody may; they are signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _one(connection, name)
            users.set_role(connection, user.id, str(role))
            sessions.end_all(connection, user.id)
            trail.write(connection, clock.now(connection), by, WHAT, f"{user.name} is {role} now, was {user.role}")

    def give_password(self, name: str, password: str, by: str) -> None:
        """Change somebody's password, to one of this hash; they are signed out everywhere.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _one(connection, name)
            users.set_password(connection, user.id, password)
            sessions.end_all(connection, user.id)
            trail.write(connection, clock.now(connection), by, WHAT, f"{user.name} has another password")

    def sign_out_everywhere(self, name: str, by: str) -> None:
        """End all of somebody's sessions: one may be in other hands.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _one(connection, name)
            sessions.end_all(connection, user.id)
            trail.write(connection, clock.now(connection), by, WHAT, f"{user.name} signed out everywhere")

    def rehashed(self, secret: Secret, password: str) -> Secret:
        """Keep the same password by a better hash; nobody is signed out, and one that was changed meanwhile stays."""
        with self.database.writing() as connection:
            if users.is_still(connection, secret):
                users.set_password(connection, secret.id, password)
        return secret._replace(password=password)

    def remove(self, name: str, by: str) -> None:
        """Remove somebody, with all their sessions; what they did stays in the trail.

        Raises:
            UserRefused: there is no such user.
        """
        with self.database.writing() as connection:
            user = _one(connection, name)
            users.remove(connection, user.id)
            trail.write(connection, clock.now(connection), by, WHAT, f"{user.name} removed, was {user.role}")


def named(name: str) -> str:
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


def _one(connection: Connection, name: str) -> User:
    found = users.find(connection, named(name))
    if found is None:
        raise UserRefused(f"There is no user {name}: `bridge deadletters users` lists them.")
    return found
