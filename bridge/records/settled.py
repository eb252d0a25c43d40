"""A delivery's mark in the user's own database, in the handler's own transaction: the only SQL of the hand-off.

By SQLAlchemy, or by Django's own connection: a transaction belongs to the library that began it.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any, Final

from bridge.errors import AlreadySettled, CannotSettle

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.orm import Session

#: The table in the user's database; made on first use, or by a migration of the user's from `table()`.
TABLE: Final = "bridge_settled"

#: For Django, whose tables its migrations make: `migrations.RunSQL(CREATE_TABLE, f"DROP TABLE {TABLE}")`.
CREATE_TABLE: Final = f"""\
CREATE TABLE {TABLE} (
    mark varchar(64) NOT NULL PRIMARY KEY,
    delivery text NOT NULL,
    origin text NOT NULL,
    settled_at timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL
)"""

_ready: set[str] = set()
_making = threading.Lock()


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
    insert = _insert_by_django if hasattr(session, "in_atomic_block") else _insert_by_sqlalchemy
    mark = hashlib.sha256(f"{origin} {delivery}".encode()).hexdigest()
    if not insert(session, {"mark": mark, "delivery": delivery, "origin": origin}):
        raise AlreadySettled(f"{delivery} was committed by an earlier run.")


def _insert_by_sqlalchemy(session: Session, row: dict[str, str]) -> bool:
    """Insert the mark; return whether it was not there."""
    from sqlalchemy import exc, insert

    found = table()
    _make(session, found)
    try:
        session.execute(insert(found).values(**row))
    except exc.IntegrityError:
        return False
    return True


def _insert_by_django(connection: Any, row: dict[str, str]) -> bool:
    """Insert the mark; return whether it was not there."""
    from django.db import IntegrityError

    if not connection.in_atomic_block:
        raise CannotSettle("settle_with(connection) must be called inside `with transaction.atomic():`.")
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {TABLE} ({', '.join(row)}) VALUES (%s, %s, %s)", list(row.values()))
    except IntegrityError:
        return False
    return True


def table(metadata: Any = None) -> Table:
    """The table, in a metadata of the user's or in one of its own."""
    from sqlalchemy import Column, DateTime, MetaData, String, Table, Text, func

    home = MetaData() if metadata is None else metadata
    return Table(
        TABLE,
        home,
        # A digest: the names in it may be longer than what databases take for a key.
        Column("mark", String(64), primary_key=True),
        Column("delivery", Text, nullable=False),
        Column("origin", Text, nullable=False),
        Column("settled_at", DateTime(timezone=True), server_default=func.now(), nullable=False),
        extend_existing=True,
    )


def _make(session: Any, found: Table) -> None:
    """Make the table if it is missing, in a transaction of its own: DDL would end the handler's on some databases.

    A session that has no connection yet gets none here: its pool may have but one.
    """
    from sqlalchemy import exc, inspect

    engine = session.get_bind().engine if hasattr(session, "get_bind") else session.engine
    if engine.dialect.name == "sqlite":
        # It lets one connection write at a time: a second would wait for the handler's. Here DDL rolls back too.
        found.create(session.connection() if hasattr(session, "get_bind") else session, checkfirst=True)
        return
    key = str(engine.url)
    with _making:
        if key in _ready:
            return
        try:
            found.create(engine, checkfirst=True)
        except exc.DBAPIError:
            # Another process was faster, or this user may not make tables.
            if not inspect(engine).has_table(TABLE):
                raise
        _ready.add(key)
