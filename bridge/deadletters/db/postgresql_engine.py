"""The engine for PostgreSQL, with a timeout for each way in which it may not answer."""

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

#: Seconds to wait for a connection, and for the first answer of one that was kept.
CONNECT_WITHIN: Final = 5
#: Seconds to wait for another's lock.
LOCKED_FOR: Final = 30
#: Seconds after which PostgreSQL gives up a statement: a database that hangs must be noticed.
STATEMENT_WITHIN: Final = 60
#: Seconds after which PostgreSQL takes a transaction back whose process has gone silent in the midst of it: it may be
#: frozen, with locks that others wait for. Less than these wait.
SILENT_FOR: Final = 15
#: Seconds after which a process gives up a PostgreSQL that has not even given up the statement: it is frozen, or the
#: network swallows what it says. libpq waits for it without an end.
ANSWER_WITHIN: Final = STATEMENT_WITHIN + 10


class PatientConnection(psycopg.Connection[Any]):
    """A connection that waits for `patience` seconds for each answer, or without an end for None."""

    patience: float | None = ANSWER_WITHIN

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer. Raises psycopg.OperationalError, with the connection closed, where there is none."""
        if self.patience is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        return super().wait(self._patiently(gen, self.patience), interval)

    def _patiently(self, gen: Any, patience: float) -> Generator[Any, Any, Any]:
        """The same, as long as something moves: many rows are one wait, with an answer for each."""
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
    """An engine whose connections have these limits. Raises ImportError where psycopg is not installed."""
    limits = {"statement": STATEMENT_WITHIN, "lock": LOCKED_FOR, "idle_in_transaction_session": SILENT_FOR}
    options = " ".join(f"-c {name}_timeout={seconds * 1000}" for name, seconds in limits.items())
    arguments = {"connect_timeout": CONNECT_WITHIN, "options": options, "application_name": _application_name()}
    made = create_engine(url, pool_pre_ping=True, pool_size=2, max_overflow=8, connect_args=arguments)
    made.dialect.do_ping = _ping_within(made.dialect.do_ping)  # type: ignore[assignment, method-assign]

    @event.listens_for(made, "do_connect")
    def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> PatientConnection:
        return PatientConnection.connect(*arguments, **options)

    # Before SQLAlchemy looks at the server: psycopg gives it bytes where the encoding is SQL_ASCII.
    @event.listens_for(made, "connect", insert=True)
    def connected(connection: Any, _record: Any) -> None:
        if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            raise DeskUnavailable(
                f"The dead letters' database ({database_engine.redact_database_url(url)}, DEADLETTERS_DATABASE_URL) "
                f"has the encoding "
                f"{encoding}, in which not every text can be kept: it must be UTF8 (createdb --encoding=UTF8 "
                "--template=template0)."
            )

    return made


def lift_timeouts(connection: Connection) -> None:
    """Lift the limits of what is done in a connection's transaction; of its waiting, for as long as it is open.

    An index over a million letters takes longer than any statement may that answers somebody.
    """
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    vars(connection.connection.dbapi_connection)["patience"] = None


def _ping_within(ping: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a connection that was kept still answers, in the time that a new one has."""

    def ping_soon(connection: PatientConnection) -> bool:
        connection.patience = CONNECT_WITHIN
        try:
            return ping(connection)
        finally:
            connection.patience = ANSWER_WITHIN

    return ping_soon


def _application_name() -> str:
    """By which who looks at pg_stat_activity finds the process; PostgreSQL keeps 63 characters."""
    return f"bridge deadletters, process {os.getpid()} on {socket.gethostname()}"
