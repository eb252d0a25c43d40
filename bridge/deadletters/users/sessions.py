"""Who is signed in: kept in the database by a hash of the cookie, so that a restart signs nobody out."""

from dataclasses import dataclass
from typing import Final

from bridge.deadletters.store import sessions, users
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.users import Secret
from bridge.deadletters.users.role import Role

#: Ms after which somebody signs in again, whatever they did meanwhile.
LASTS: Final = 12 * 3_600_000
#: For the trail: who was signed in by the one-time link of a console without users.
BY_LINK: Final = "one-time link"


@dataclass(frozen=True)
class Sessions:
    """Every method raises DeskUnavailable where the database does not answer.

    Parameters of the methods: `digest` is of a cookie, `now` in ms since the epoch.
    """

    database: Database

    def begin(self, digest: bytes, secret: Secret, now: int) -> bool:
        """Sign in a user whose password was right; not, where it was changed or they were removed meanwhile."""
        with self.database.writing() as connection:
            still = users.is_still(connection, secret)
            if still:
                sessions.add(connection, digest, secret.id, now, now + LASTS)
            return still

    def begin_by_link(self, digest: bytes, now: int) -> bool:
        """Sign in who has the one-time link; not where there are users."""
        with self.database.writing() as connection:
            alone = not users.is_any(connection)
            if alone:
                sessions.add(connection, digest, None, now, now + LASTS)
            return alone

    def who(self, digest: bytes, now: int) -> tuple[str, Role] | None:
        """Whose session it is, and what they may now; `None`: nobody's (any more)."""
        with self.database.reading() as connection:
            found = sessions.find(connection, digest, now)
            if found is None or found.name is not None:
                return found and (str(found.name), Role.read(str(found.role)) or Role.NOBODY)
            return None if users.is_any(connection) else (BY_LINK, Role.ADMIN)

    def end(self, digest: bytes) -> None:
        """Sign out."""
        with self.database.writing() as connection:
            sessions.end(connection, digest)
