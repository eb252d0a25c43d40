"""Who is signed in by the word of an issuer of OpenID Connect: no user here, and none of their passwords is."""

from dataclasses import dataclass
from typing import NamedTuple

from bridge.deadletters.store import clock, issued, trail
from bridge.deadletters.store.database import Database
from bridge.deadletters.users.role import Role
from bridge.deadletters.users.sessions import LASTS
from bridge.deadletters.users.users import WHAT


class Person(NamedTuple):
    """Whom an issuer has signed in.

    Attributes:
        subject: what the issuer knows them by for good.
        name: for the trail.
    """

    issuer: str
    subject: str
    name: str
    role: Role


@dataclass(frozen=True)
class Issued:
    """Every method raises DeskUnavailable where the database does not answer.

    Parameters of the methods: `digest` is of a cookie, `now` in ms since the epoch.
    """

    database: Database

    def begin(self, digest: bytes, person: Person, now: int) -> None:
        """Sign somebody in, with a line in the trail."""
        with self.database.writing() as connection:
            issued.add(connection, digest, person.issuer, person.name, str(person.role), now, now + LASTS)
            said = f"signed in by {person.issuer}, as {person.role}; there: {person.subject}"
            trail.write(connection, clock.now(connection), person.name, WHAT, said)

    def who(self, digest: bytes, issuer: str, now: int) -> tuple[str, Role] | None:
        """Whose session it is, and what they may; `None`: nobody's (any more).

        Parameters:
            issuer: the one that is believed now: sessions of another are over.
        """
        with self.database.reading() as connection:
            found = issued.find(connection, digest, issuer, now)
        return found and (found.name, Role.read(found.role) or Role.NOBODY)

    def end(self, digest: bytes) -> None:
        """Sign out."""
        with self.database.writing() as connection:
            issued.end(connection, digest)

    def end_all(self, by: str) -> None:
        """Sign out everybody whom an issuer has signed in: what they may there may have changed."""
        with self.database.writing() as connection:
            count = issued.end_all(connection)
            said = f"all whom an issuer had signed in are signed out: {count} sessions"
            trail.write(connection, clock.now(connection), by, WHAT, said)
