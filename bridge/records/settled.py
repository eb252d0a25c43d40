"""A delivery's mark in the user's own database, in the handler's own transaction; what the handler sends beside it."""

import hashlib
import time
from typing import Any, Final

from bridge.errors import AlreadySettled
from bridge.records import user_database
from bridge.records.user_database import CREATE_OUTBOX, CREATE_SETTLED, OUTBOX, SETTLED, insert

#: The table of marks in the user's database; made on first use, or by a migration of the user's from `table()`.
TABLE: Final = SETTLED
#: The table of what handlers send, until it is published; made likewise, or from `outbox_table()`.
OUTBOX_TABLE: Final = OUTBOX

#: For Django, whose tables its migrations make: `migrations.RunSQL(CREATE_TABLE, f"DROP TABLE {TABLE}")`.
CREATE_TABLE: Final = CREATE_SETTLED
CREATE_OUTBOX_TABLE: Final = CREATE_OUTBOX


def settle_with(session: Any, delivery: str, origin: str) -> None:
    """Write "done" for a delivery in the session's transaction, so that work and mark commit or roll back together.

    Parameters:
        session: a SQLAlchemy session or connection with the handler's transaction, or Django's `connection` inside
            `transaction.atomic()`.
        delivery: the delivery's identity.
        origin: what tells it from one of the same identity: of another Kafka or group, or of a topic that was
            deleted and made again.

    Raises:
        AlreadySettled: an earlier run has committed its work. Let it pass: the session is rolled back, and the
            delivery is done.
        CannotSettle: Django's connection has no transaction: the mark would be committed before the work.
    """
    row = {"mark": mark_of(delivery, origin), "delivery": delivery, "origin": origin}
    if not insert(session, SETTLED, row):
        raise AlreadySettled(f"{delivery} was committed by an earlier run.")


def put_in_outbox(session: Any, mark: str, number: int, whose: str, body: str) -> None:
    """Write what a handler sends in the session's transaction, as `settle_with`.

    Parameters:
        mark: of its delivery.
        number: which of its messages, from 0.
        whose: the Kafka and the group that it is of.
    """
    row = {"mark": mark, "number": number, "whose": whose, "body": body, "written_at": time.time()}
    insert(session, OUTBOX, row)


def mark_of(delivery: str, origin: str) -> str:
    """The key by which a delivery is found in the user's database."""
    return hashlib.sha256(f"{origin} {delivery}".encode()).hexdigest()


def table(metadata: Any = None) -> Any:
    """The table of marks (SQLAlchemy's `Table`), in a metadata of the user's or in one of its own."""
    return user_database.table(SETTLED, metadata)


def outbox_table(metadata: Any = None) -> Any:
    """The table of what handlers send, likewise."""
    return user_database.table(OUTBOX, metadata)
