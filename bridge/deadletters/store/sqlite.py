"""SQLite as the desk's database: a file, with one that writes at a time."""

import sqlite3
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

#: Seconds to wait for another's write of the file.
LOCKED_FOR: Final = 30


def engine(url: URL) -> Engine:
    """An engine whose transactions are begun as what they are: such that write (`desk_writes`) wait for each other."""
    made = create_engine(url, connect_args={"timeout": LOCKED_FOR, "check_same_thread": False})

    @event.listens_for(made, "connect")
    def connected(connection: sqlite3.Connection, _record: Any) -> None:
        # Transactions are begun by us (below): the module begins none before a SELECT or a CREATE.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-65536"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(made, "begin")
    def begun(connection: Connection) -> None:
        # A transaction that reads first and writes then would fail where another has written between the two.
        writes = connection.get_execution_options().get("desk_writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return made
