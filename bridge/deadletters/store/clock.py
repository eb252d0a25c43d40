"""The time that a lease is measured by: the database's, where several hosts use it."""

import time

from sqlalchemy import Connection, text

_ASKED = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS bigint)")


def now(connection: Connection) -> int:
    """Ms since the epoch: by PostgreSQL's clock, or this host's, on which a SQLite file lies."""
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_ASKED).scalar_one())
    return int(time.time() * 1000)
