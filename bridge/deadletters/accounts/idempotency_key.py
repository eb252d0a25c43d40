"""Requests of programs, each done once by its idempotency key, across two consoles and the death of one."""

import secrets
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.deadletters.db import audit_rows, sql
from bridge.deadletters.db.audit_rows import AuditEntry, RequestClaim
from bridge.deadletters.db.database import Database
from bridge.errors import KeyReused, RequestUnderWay

#: Ms for which a key is kept, and for which a process has a request for itself. A plan of very many letters takes its
#: time; a process that takes longer does nothing more once another has taken over.
KEPT: Final = 86_400_000
CLAIMED: Final = 120_000


class AnsweredRequest(NamedTuple):
    """The answer that was given to the first request of a key."""

    status: int
    answer: str


class BegunRequest(NamedTuple):
    """A request that this process must do now.

    Attributes:
        done: the audit entry of the act, if a process did it and died before it answered.
    """

    claim: RequestClaim
    done: AuditEntry | None


@dataclass(frozen=True)
class IdempotentRequests:
    """The requests of programs. Every method raises DeskUnavailable if the database does not answer."""

    database: Database

    def begin(self, digest: bytes, asked: bytes) -> BegunRequest | AnsweredRequest:
        """Claim a request, or return its earlier answer.

        Parameters:
            digest: of the caller and the idempotency key.
            asked: the digest of the request.

        Raises:
            KeyReused: the key was used for another request.
            RequestUnderWay: another process does it now.
        """
        claim = RequestClaim(digest, secrets.token_bytes(16))
        with self.database.writing() as connection:
            now = sql.read_clock(connection)
            if audit_rows.begin_request(connection, claim, asked, now, now + KEPT, now + CLAIMED):
                return BegunRequest(claim, None)
            found = audit_rows.hold_request(connection, digest)
            if found.asked != asked:
                raise KeyReused("This Idempotency-Key was used for another request: take a new key for each request.")
            if found.status is not None:
                return AnsweredRequest(found.status, found.answer or "")
            if found.claimed_until > now:
                raise RequestUnderWay("This request is in flight: repeat it for its answer.")
            audit_rows.take_over_request(connection, claim, now + CLAIMED)
            return BegunRequest(
                claim, None if found.trail_id is None else audit_rows.read_entry(connection, found.trail_id)
            )

    def answered(self, claim: RequestClaim, status: int, answer: str) -> None:
        """Store the answer."""
        with self.database.writing() as connection:
            audit_rows.keep_answer(connection, claim, status, answer)

    def leave(self, claim: RequestClaim) -> None:
        """Release a request that could not be done: a repetition does it, or gets the answer if it was done all the
        same.
        """
        with self.database.writing() as connection:
            audit_rows.release_request(connection, claim)
