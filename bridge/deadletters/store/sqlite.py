"""SQLite as the desk's database: a file, with one that writes at a time."""

import os
import sqlite3
import stat
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

#: Seconds to wait for another's write of the file.
LOCKED_FOR: Final = 30
#: The mode of a new file.
_OWNER_ALONE: Final = 0o600


def engine(url: URL) -> Engine:
    """An engine whose transactions are begun as what they are: such that write (`desk_writes`) wait for each other."""
    made = create_engine(url, connect_args={"timeout": LOCKED_FOR, "check_same_thread": False})

    @event.listens_for(made, "do_connect")
    def connecting(*_: Any) -> None:
        _keep_private(url.database)

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


def _keep_private(file: str | None) -> None:
    """Keep the file from other users of this machine: it has records, hashes of passwords and webhooks' secrets.

    SQLite gives its journal files the mode of the file. The group of a file that is there keeps what it may do: several
    users may share it so.
    """
    if not file or file == ":memory:" or file.startswith("file:"):
        return
    # What is wrong with the file or its folder, SQLite says itself.
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ALONE))
    for each in (file, f"{file}-wal", f"{file}-shm"):
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(each).st_mode)
            if mode & stat.S_IRWXO:
                os.chmod(each, mode & ~stat.S_IRWXO)
