"""The engine for PostgreSQL, with a timeout for each way in which it may not respond."""

import os
import socket
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL

from bridge.deadletters.db import database_engine
from bridge.errors import DeskUnavailable

#: Seconds to wait for a connection, and for the first answer of a pooled one.
CONNECT_WITHIN: Final = 5
#: Seconds to wait for a lock.
LOCKED_FOR: Final = 30
#: Seconds after which PostgreSQL cancels a statement: a database that hangs must be noticed.
STATEMENT_WITHIN: Final = 60
#: Seconds after which PostgreSQL rolls back an idle transaction: its process may be frozen, with locks that others
#: wait for. Less than the time to wait for a lock.
SILENT_FOR: Final = 15
#: Seconds after which a process gives up a PostgreSQL that has not cancelled the statement: it is frozen, or the
#: network drops its answers. libpq would wait forever.
ANSWER_WITHIN: Final = STATEMENT_WITHIN + 10


class PatientConnection(psycopg.Connection[Any]):
    """A connection that waits at most `patience` seconds for each answer, or forever if `None`."""

    patience: float | None = ANSWER_WITHIN

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer; without one, close the connection and raise psycopg.OperationalError."""
        if self.patience is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        return super().wait(self._patiently(gen, self.patience), interval)

    def _patiently(self, gen: Any, patience: float) -> Generator[Any, Any, Any]:
        """Yield the steps of a wait as long as data arrives: many rows are one wait with many answers."""
        moved = monotonic()
        try:
            asked = next(gen)
            while True:
                ready = yield asked
                if ready:
                    moved = monotonic()
                elif monotonic() - moved >= patience:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the connection gave no answer within {patience} s")
                asked = gen.send(ready)
        except StopIteration as done:
            return done.value


def create_postgresql_engine(url: URL) -> Engine:
    """Return an engine whose connections have these limits. Raises ImportError if psycopg is not installed."""
    limits = {"statement": STATEMENT_WITHIN, "lock": LOCKED_FOR, "idle_in_transaction_session": SILENT_FOR}
    options = " ".join(f"-c {name}_timeout={seconds * 1000}" for name, seconds in limits.items())
    arguments = {"connect_timeout": CONNECT_WITHIN, "options": options, "application_name": _application_name()}
    made = create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=8, connect_args=arguments)
    made.dialect.do_ping = _ping_within(made.dialect.do_ping)  # type: ignore[assignment, method-assign]

    @event.listens_for(made, "do_connect")
    def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> PatientConnection:
        return PatientConnection.connect(*arguments, **options)

    # Before SQLAlchemy queries the server: psycopg would give it bytes if the encoding is SQL_ASCII.
    @event.listens_for(made, "connect", insert=True)
    def connected(connection: Any, _record: Any) -> None:
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise DeskUnavailable(
                f"The dead letters' database ({database_engine.redact_database_url(url)}, DEADLETTERS_DATABASE_URL) "
                f"has the encoding "
                f"{encoding}, which cannot store every text: it must be UTF8 (createdb --encoding=UTF8 "
                "--template=template0)."
            )

    return made


def lift_timeouts(connection: Connection) -> None:
    """Lift the timeouts of a connection: the server's for this transaction, the client's for as long as it is open.

    An index over a million letters takes longer than any other statement may.
    """
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    vars(connection.connection.dbapi_connection)["patience"] = None


def _ping_within(ping: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a ping that waits for a pooled connection as long as for a new one."""

    def ping_soon(connection: PatientConnection) -> bool:
        connection.patience = CONNECT_WITHIN
        try:
            return ping(connection)
        finally:
            connection.patience = ANSWER_WITHIN

    return ping_soon


def _application_name() -> str:
    """Return the process's name in pg_stat_activity, of which PostgreSQL keeps 63 characters."""
    return f"bridge deadletters, process {os.getpid()} on {socket.gethostname()}"
