"""The address of the database, and the engine for a SQLite file with the process that holds its write lock."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from bridge.errors import DeskUnavailable

#: The tested databases, by their names in addresses (Heroku's is `postgres`).
DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def parse_database_url(url: str) -> URL:
    """Return the parsed address, with the default driver unless it names another.

    Raises:
        DeskUnavailable: it is invalid, or names an unsupported database.
    """
    try:
        made = make_url(url)
    except (ArgumentError, ValueError):
        # The error's text may have a part of the password.
        raise _no_database_url() from None
    backend = made.get_backend_name()
    if backend not in DRIVERS:
        raise DeskUnavailable(
            f"DEADLETTERS_DATABASE_URL names a {backend} database: dead letters go into PostgreSQL or SQLite."
        )
    if backend == "sqlite":
        _require_database_file(made)
    elif "@" in f"{made.host}{made.database}":
        # An @ in the password has split it: no host and no database has an @ in its name.
        raise _no_database_url()
    return made.set(drivername=DRIVERS[made.drivername]) if made.drivername in DRIVERS else made


def redact_database_url(url: URL) -> str:
    """Return an address for logs: without its password, and without its options, which may be passwords."""
    return url.set(query={}).render_as_string(hide_password=True)


def _no_database_url() -> DeskUnavailable:
    return DeskUnavailable(
        "DEADLETTERS_DATABASE_URL is no address of a database: write postgresql://user:password@host/database, "
        "the password URL-encoded, or sqlite:////path/to/file."
    )


def _require_database_file(url: URL) -> None:
    if url.database in (None, "", ":memory:"):
        raise DeskUnavailable(
            "DEADLETTERS_DATABASE_URL names a database in memory, which is gone with its process: "
            "write sqlite:////path/to/file."
        )


#: Linux's list of locks. Never query a lock on the file itself: closing it would release our own locks.
PROC_LOCKS: Final = Path("/proc/locks")
#: The byte of SQLite's `-shm` file that a writer locks.
WRITER_BYTE: Final = 120


def describe_lock_holder(file: str | None) -> str:
    """Return a clause: the process that writes to a SQLite file now, and what to do; "" if unknown."""
    try:
        pid = find_writing_process(PROC_LOCKS.read_text().splitlines(), os.stat(f"{file}-shm").st_ino)
        return "" if pid is None else _describe_process(pid, Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return ""


def find_writing_process(locks: Iterable[str], inode: int) -> int | None:
    """Return the process that has the write lock, from the lines of /proc/locks (pure).

    Parameters:
        inode: of the `-shm` file.
    """
    for line in locks:
        # `7: POSIX  ADVISORY  WRITE 4711 fe:00:12447578 120 120`; a waiting process has `7: -> POSIX …`.
        words = line.split()
        if words[1:2] != ["POSIX"] or words[3] != "WRITE" or words[5].rpartition(":")[2] != str(inode):
            continue
        pid, first, last = int(words[4]), int(words[6]), words[7]
        # A process in another container has no number here.
        if first <= WRITER_BYTE and (last == "EOF" or int(last) >= WRITER_BYTE) and pid > 0:
            return pid
    return None


def _describe_process(pid: int, stat: str) -> str:
    # `4711 (python) T 1 …`; the name may have any characters.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    if rest.split()[:1] in (["T"], ["t"]):
        return f"process {pid} ({name}) has it and is stopped: wake it (kill -CONT) or end it, nothing else frees it"
    return f"process {pid} ({name}) has it: see what it does; if it never ends, end it"


#: Seconds to wait for another process's write.
SQLITE_LOCKED_FOR: Final = 30
#: Seconds until the write-ahead log is asked for again.
_WAL_PAUSE: Final = 0.05
#: The mode of a new file.
_OWNER_ALONE: Final = 0o600


def create_sqlite_engine(url: URL) -> Engine:
    """Return an engine whose writing transactions (`desk_writes`) take the write lock when they begin."""
    made = create_engine(url, connect_args={"timeout": SQLITE_LOCKED_FOR, "check_same_thread": False})

    @event.listens_for(made, "do_connect")
    def connecting(*_: Any) -> None:
        _keep_private(url.database)

    @event.listens_for(made, "connect")
    def connected(connection: sqlite3.Connection, _record: Any) -> None:
        # `begun` below begins transactions: the sqlite3 module begins none before a SELECT or a CREATE.
        connection.isolation_level = None
        _begin_wal(connection)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "cache_size=-65536"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(made, "begin")
    def begun(connection: Connection) -> None:
        # A transaction that reads before it writes would fail if another process wrote in between.
        writes = connection.get_execution_options().get("desk_writes", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return made


def _begin_wal(connection: sqlite3.Connection) -> None:
    """Give a file its write-ahead log: SQLite does not wait for this while another process writes to a new file."""
    until = time.monotonic() + SQLITE_LOCKED_FOR
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(_WAL_PAUSE)


def _keep_private(file: str | None) -> None:
    """Make the file readable for its owner alone: it has records, password hashes and webhook secrets.

    SQLite gives its journal files the mode of the file. An existing file keeps the permissions of its group: several
    users may share it.
    """
    if not file or file == ":memory:" or file.startswith("file:"):
        return
    # SQLite itself reports a fault of the file or its folder.
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, _OWNER_ALONE))
    for each in (file, f"{file}-wal", f"{file}-shm"):
        with suppress(OSError):
            mode = stat.S_IMODE(os.stat(each).st_mode)
            if mode & stat.S_IRWXO:
                os.chmod(each, mode & ~stat.S_IRWXO)
