"""The database of the dead-letter store: connections, transactions, migration, the Kafka cluster that it belongs to,
and advice for each of its errors.
"""

import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError, StatementError

from bridge.deadletters.db import database_engine, file_rewrite, schema_migration
from bridge.deadletters.db.audit_rows import RequestClaim
from bridge.deadletters.db.database_engine import describe_lock_holder
from bridge.deadletters.db.row_scope import SCOPE_OPTION, RowScope, narrow_execution
from bridge.deadletters.model.payload_codec import PLAIN_PAYLOADS, PayloadCodec
from bridge.errors import (
    DeskDatabaseNewer,
    DeskOfAnotherKafka,
    DeskRefused,
    DeskUnavailable,
    NoDatabase,
    NoSuchStep,
    how_to_install,
)

__all__ = ["Connection", "Database", "explain_error", "remember_fact"]

#: The execution option of connections with the codec that reads values for people.
PAYLOADS_OPTION: Final = "desk_payloads"

#: Classes of SQLSTATE for values that are refused: data, constraints, limits of the database.
_REFUSALS: Final = ("22", "23", "54")

_ADVICE: Final = (
    ("database or disk is full", "its disk is full: make room; nothing is recorded until then"),
    ("no space left", "its disk is full: make room; nothing is recorded until then"),
    ("disk i/o error", "its disk is full, or fails: look at it; nothing is recorded until then"),
    ("file is not a database", "the file is no SQLite database: name another"),
    ("failed to resolve host", "fix the host's name"),
    ("database is locked", "another process writes for long (a backup, a cleanup): find it, and try again"),
    ("readonly database", "the file, or its folder, may not be written by this user"),
    ("unable to open database file", "its folder must exist, and be writable by this user"),
    (
        "lock timeout",
        "another process has locked it for long: pg_blocking_pids() tells which, pg_terminate_backend() ends it",
    ),
    (
        "idle-in-transaction timeout",
        "this process did not respond during the transaction (frozen?): nothing was written",
    ),
    ("password authentication failed", "check user and password"),
    ('role "', "create it (createuser), or fix the user's name"),
    ("does not exist", "create it (createdb), or fix the name"),
    ("permission denied for schema", "have its owner make the tables: bridge deadletters migrate"),
    ("too many clients", "raise max_connections, or let fewer processes connect"),
    ("canceling statement due to statement timeout", "see what keeps it busy (pg_stat_activity), and try again"),
    ("connection", "start it or fix the network, and try again"),
)


class Database:
    """A database with the tables of the dead-letter store, in SQLite or PostgreSQL.

    Parameters:
        url: in SQLAlchemy's form; `postgresql://` uses psycopg.
        payloads: reads and writes the values of letters for people.

    Attributes:
        name: the database, without a password.
        dialect: "sqlite" or "postgresql".

    Raises:
        DeskUnavailable: the address is invalid, or names an unsupported database.
    """

    def __init__(self, url: str, payloads: PayloadCodec = PLAIN_PAYLOADS) -> None:
        self.payloads = payloads
        made = database_engine.parse_database_url(url)
        self.name = database_engine.redact_database_url(made)
        self.dialect = made.get_backend_name()
        self._engine = _create_engine(made)
        self._claim: RequestClaim | None = None
        self._scope: RowScope | None = None
        self._narrowed: Engine | None = None

    def for_scope(self, scope: RowScope) -> Self:
        """Return the same database for an account with a scope: it reads and changes covered rows alone."""
        if self._narrowed is None:
            # An engine with the same connections and a hook, which costs others nothing.
            self._narrowed = self._engine.execution_options()
            event.listen(self._narrowed, "before_execute", narrow_execution, retval=True)
        made = copy(self)
        made._engine, made._scope = self._narrowed, scope
        return made

    def doing(self, claim: RequestClaim) -> Self:
        """Return the same database for a request: audit entries complete the request (`trail`)."""
        made = copy(self)
        made._claim = claim
        return made

    def apart(self) -> Self:
        """Return the same database with connections of its own, which no other work can exhaust."""
        if self._scope is not None:
            raise ValueError("A database with a scope has no connections of its own: they would read all rows.")
        made = copy(self)
        made._engine, made._narrowed = _create_engine(self._engine.url), None
        return made

    @property
    def is_there(self) -> bool:
        """Return whether the database may have data: opening a missing SQLite file would create it."""
        file = self._engine.url.database
        return self.dialect != "sqlite" or file is None or Path(file).exists()

    def need(self) -> None:
        """Raise NoDatabase if a SQLite file does not exist; opening a file without its folder explains itself."""
        if not self.is_there and Path(str(self._engine.url.database)).absolute().parent.is_dir():
            file = Path(str(self._engine.url.database)).absolute()
            raise NoDatabase(
                f"There is no dead letters' database {file}, and none was made. In another folder, or by another "
                "DEADLETTERS_DATABASE_URL, there may be one: use that of the recorder. If nothing was recorded "
                "yet, start `bridge deadletters record`; without a database there is `bridge deadletters list "
                "--from-topic`."
            )

    @property
    def may_be_made(self) -> bool:
        """Return whether a missing file can be created: the folder exists and is writable."""
        file = self._engine.url.database
        return self.dialect != "sqlite" or file is None or os.access(Path(file).absolute().parent, os.W_OK)

    @property
    def step(self) -> str | None:
        """Return the migration step of the tables; `None` if there are no tables.

        Raises:
            DeskUnavailable: the database did not answer.
        """
        with self.reading() as connection:
            return schema_migration.read_step(connection)

    def close(self) -> None:
        """Close the connections, also those to the schema registry."""
        self.payloads.close()
        self._engine.dispose()

    def migrate(self, to: str = "head") -> tuple[str | None, str]:
        """Create the tables, or migrate them to a step, one process at a time.

        Parameters:
            to: one of `schema_migration.list_steps`, or "head".

        Returns:
            The step before (`None`: there were no tables) and now.

        Raises:
            DeskDatabaseNewer: a newer version has migrated it.
            DeskUnavailable: the database did not do it.
            NoSuchStep: `to` is no step of this version.
        """
        if to != "head" and to not in schema_migration.list_steps():
            raise NoSuchStep(f"no step {to}: this version has {', '.join(schema_migration.list_steps())}.")
        with self.reading() as connection:
            if schema_migration.is_at_step(connection, to):
                return (now := schema_migration.read_step(connection)), str(now)
        with self.writing() as connection:
            before = schema_migration.read_step(connection)
            if before is not None and not schema_migration.is_known_step(before):
                raise DeskDatabaseNewer(
                    f"The dead letters' database ({self.name}) is at step {before}, which this version does not know: "
                    "a newer version of celery-kafka-bridge has been here. Use that one; or have that one take its "
                    f"steps back: bridge deadletters migrate --to {schema_migration.find_newest_step()}."
                )
            schema_migration.migrate_tables(connection, to)
            return before, str(schema_migration.read_step(connection))

    @property
    def _options(self) -> dict[str, Any]:
        """Return the execution options of its connections."""
        scope = {} if self._scope is None else {SCOPE_OPTION: self._scope}
        return {PAYLOADS_OPTION: self.payloads, **scope}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads.

        Raises:
            DeskUnavailable: the database did not answer.
        """
        with self._explained("read"), self._engine.connect() as connection:
            connection = connection.execution_options(desk_writes=False, **self._options)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes and commits at its end; SQLite has one at a time.

        Raises:
            DeskUnavailable: the database failed; the outcome of a commit in flight is unknown.
            DeskRefused: the database refuses the values.
        """
        with self._explained("written"), self._engine.connect() as connection:
            connection = connection.execution_options(desk_writes=True, desk_claim=self._claim, **self._options)
            with connection.begin():
                yield connection

    def rewrite(self, tables: Iterable[str]) -> list[str]:
        """Rewrite the files, so that they have no bytes of deleted rows; return what remains, a sentence each.

        Every other process waits meanwhile.

        Parameters:
            tables: those with deleted or changed rows.

        Raises:
            DeskUnavailable: the database did not do it: another process reads or writes for too long.
        """
        with self._explained("rewritten"):
            return file_rewrite.rewrite_files(self._engine, tables)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError, sqlite3.Error, OverflowError, UnicodeError) as error:
            held = describe_lock_holder(self._engine.url.database) if _is_locked(error) else ""
            raise (DeskRefused if _is_refusal(error) else DeskUnavailable)(
                f"The dead letters' database ({self.name}, DEADLETTERS_DATABASE_URL) could not be {doing}: "
                f"{explain_error(error, held)}."
            ) from error


def explain_error(error: BaseException, advice: str = "") -> str:
    """Return the error in a line, with advice; without the statement and its values, which may be payloads.

    Parameters:
        advice: overrides the usual advice.
    """
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    # Only the first line of PostgreSQL's message: the others quote rows.
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    line = " ".join(str(primary or original).split())[:300].rstrip(". ") or type(original).__name__
    usual = next((advice for words, advice in _ADVICE if words in line.lower()), "see the database's own log")
    return f"{line}; {advice or usual}"


def _is_locked(error: Exception) -> bool:
    """Return whether the error is a SQLite file that another process has locked for too long."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlite_errorname", "") == "SQLITE_BUSY"


def _is_refusal(error: Exception) -> bool:
    """Return whether the database refuses the values, rather than fails itself."""
    if not isinstance(error, DBAPIError):
        # The driver cannot pass the value on: the database has not seen it.
        return isinstance(error, (OverflowError, UnicodeError, StatementError, sqlite3.DataError))
    return str(getattr(error.orig, "sqlstate", None))[:2] in _REFUSALS or isinstance(error, (DataError, IntegrityError))


def _create_engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() == "sqlite":
            return database_engine.create_sqlite_engine(url)
        # psycopg is an extra, which SQLite does not need.
        from bridge.deadletters.db import postgresql_engine

        return postgresql_engine.create_postgresql_engine(url)
    except (NoSuchModuleError, ImportError) as error:
        raise DeskUnavailable(
            f"DEADLETTERS_DATABASE_URL needs a library that is not installed ({error}); "
            f"{how_to_install('deadletters', 'postgresql')}."
        ) from None


def remember_fact(connection: Connection, name: str, value: str) -> str:
    """Return the fact that is stored under a name; store `value` if there is none yet."""
    row = {"name": name, "value": value}
    connection.execute(
        text("INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"), row
    )
    return str(connection.execute(text("SELECT value FROM facts WHERE name = :name"), {"name": name}).scalar_one())


def require_same_cluster(database: Database, cluster: str) -> None:
    """Bind a database to one Kafka cluster: the first that asks.

    Parameters:
        cluster: the id of the Kafka cluster.

    Raises:
        DeskOfAnotherKafka: the letters are of another cluster.
        DeskUnavailable: the database did not answer.
    """
    with database.writing() as connection:
        found = remember_fact(connection, "cluster", cluster)
    if found != cluster:
        raise DeskOfAnotherKafka(
            f"The dead letters' database ({database.name}) holds those of the Kafka cluster {found!r}, and this is "
            f"{cluster!r}: offsets of the one mean nothing in the other. Name another database in "
            "DEADLETTERS_DATABASE_URL, or the Kafka that it is of."
        )


def read_database_identity(database: Database) -> str:
    """Return the permanent id of a database, whatever address reaches it.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    with database.writing() as connection:
        return remember_fact(connection, "database", uuid.uuid4().hex)
