"""Requests of programs, each done once by its idempotency key, across two consoles and the death of one."""

import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.db import audit_table, sql
from bridge.deadletters.db.audit_table import AuditEntry, RequestClaim
from bridge.deadletters.db.database import Database
from bridge.errors import KeyReused, RequestUnderWay

#: Ms for which a key is kept, and for which a process has a request for itself. A plan of very many letters takes its
#: time; a process that takes longer does nothing more once another has taken over.
KEPT: Final = 86_400_000
CLAIMED: Final = 120_000


class AnsweredRequest(NamedTuple):
    """What was answered when it was asked first."""

    status: int
    answer: str


class BegunRequest(NamedTuple):
    """A request that is to be done now.

    Attributes:
        done: the entry of the trail that says that it was done already, by a process that died before it could answer.
    """

    claim: RequestClaim
    done: AuditEntry | None


@dataclass(frozen=True)
class IdempotentRequests:
    """What programs asked to be done. Every method raises DeskUnavailable where the database does not answer."""

    database: Database

    def begin(self, digest: bytes, asked: bytes) -> BegunRequest | AnsweredRequest:
        """Begin a request, or find what was answered to it.

        Parameters:
            digest: of who asks, and their key.
            asked: a digest of what they ask.

        Raises:
            KeyReused: something else was asked under this key.
            RequestUnderWay: it is done just now.
        """
        claim = RequestClaim(digest, secrets.token_bytes(16))
        with self.database.writing() as connection:
            now = sql.read_clock(connection)
            if audit_table.begin_request(connection, claim, asked, now, now + KEPT, now + CLAIMED):
                return BegunRequest(claim, None)
            found = audit_table.hold_request(connection, digest)
            if found.asked != asked:
                raise KeyReused("Something else was asked under this Idempotency-Key: take a new one for each wish.")
            if found.status is not None:
                return AnsweredRequest(found.status, found.answer or "")
            if found.claimed_until > now:
                raise RequestUnderWay("This request is done just now: ask again for its answer.")
            audit_table.take_over_request(connection, claim, now + CLAIMED)
            return BegunRequest(
                claim, None if found.trail_id is None else audit_table.read_entry(connection, found.trail_id)
            )

    def answered(self, claim: RequestClaim, status: int, answer: str) -> None:
        """Keep what is answered."""
        with self.database.writing() as connection:
            audit_table.keep_answer(connection, claim, status, answer)

    def leave(self, claim: RequestClaim) -> None:
        """Give one up that could not be done: who asks again does it; where it was done all the same, hears of it."""
        with self.database.writing() as connection:
            audit_table.release_request(connection, claim)
