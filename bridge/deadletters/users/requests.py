"""Requests of programs, each done once: by two consoles, and across the death of one in the midst of it."""

import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.store import clock, requests, trail
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.requests import Claim
from bridge.deadletters.store.trail import Entry
from bridge.errors import KeyReused, RequestUnderWay

#: Ms for which a key is kept, and for which a process has a request for itself. A plan of very many letters takes its
#: time; a process that takes longer does nothing more once another has taken over.
KEPT: Final = 86_400_000
CLAIMED: Final = 120_000


class Answered(NamedTuple):
    """What was answered when it was asked first."""

    status: int
    answer: str


class Begun(NamedTuple):
    """A request that is to be done now.

    Attributes:
        done: the entry of the trail that says that it was done already, by a process that died before it could answer.
    """

    claim: Claim
    done: Entry | None


@dataclass(frozen=True)
class Requests:
    """What programs asked to be done. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def begin(self, digest: bytes, asked: bytes) -> Begun | Answered:
        """Begin a request, or find what was answered to it.

        Parameters:
            digest: of who asks, and their key.
            asked: a digest of what they ask.

        Raises:
            KeyReused: something else was asked under this key.
            RequestUnderWay: it is done just now.
        """
        claim = Claim(digest, secrets.token_bytes(16))
        with self.database.writing() as connection:
            now = clock.now(connection)
            if requests.begin(connection, claim, asked, now, now + KEPT, now + CLAIMED):
                return Begun(claim, None)
            found = requests.one(connection, digest)
            if found.asked != asked:
                raise KeyReused("Something else was asked under this Idempotency-Key: take a new one for each wish.")
            if found.status is not None:
                return Answered(found.status, found.answer or "")
            if found.claimed_until > now:
                raise RequestUnderWay("This request is done just now: ask again for its answer.")
            requests.take_over(connection, claim, now + CLAIMED)
            return Begun(claim, None if found.trail_id is None else trail.one(connection, found.trail_id))

    def answered(self, claim: Claim, status: int, answer: str) -> None:
        """Keep what is answered."""
        with self.database.writing() as connection:
            requests.answered(connection, claim, status, answer)

    def leave(self, claim: Claim) -> None:
        """Give one up that could not be done: who asks again does it; where it was done all the same, hears of it."""
        with self.database.writing() as connection:
            requests.leave(connection, claim)
