"""The bridge's two tables in the user's own database, marks of settled deliveries and the outbox, written in the
handler's transaction by SQLAlchemy or by Django's connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bridge.errors import AlreadySettled, CannotSettle

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

#: The tables in the user's database, made on first use or by the user's migrations.
SETTLED: Final = "bridge_settled"
OUTBOX: Final = "bridge_outbox"

#: The statements for Django, whose migrations make the tables.
CREATE_SETTLED: Final = f"""\
CREATE TABLE {SETTLED} (
    mark varchar(64) NOT NULL PRIMARY KEY,
    delivery text NOT NULL,
    origin text NOT NULL,
    settled_at timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL
)"""
CREATE_OUTBOX: Final = f"""\
CREATE TABLE {OUTBOX} (
    mark varchar(64) NOT NULL,
    number integer NOT NULL,
    whose text NOT NULL,
    body text NOT NULL,
    written_at double precision NOT NULL,
    PRIMARY KEY (mark, number)
)"""

_ready: set[tuple[str, str]] = set()
#: Databases that are known to have an outbox.
_there: set[str] = set()
_making = threading.Lock()

RowValues = Mapping[str, Any]
#: The most marks in one statement: SQLite before 3.32 takes 999 values.
MARKS_AT_ONCE: Final = 500


def insert_row(session: Any, name: str, row: RowValues) -> bool:
    """Insert a row in the session's transaction; return whether its key was new.

    Parameters:
        session: a SQLAlchemy session or connection with the handler's transaction, or Django's `connection` inside
            `transaction.atomic()`.
        name: `SETTLED` or `OUTBOX`.

    Raises:
        CannotSettle: Django's connection has no transaction: the row would be committed before the work.
    """
    return insert_rows(session, name, [row])


def insert_rows(session: Any, name: str, rows: Sequence[RowValues]) -> bool:
    """Insert rows with the same columns in the session's transaction; return whether all keys were new.

    Parameters:
        session, name: as for `insert_row`.

    Raises:
        CannotSettle: as `insert_row`.
    """
    return (_insert_by_django if _is_django(session) else _insert_by_sqlalchemy)(session, name, rows)


def find_user_database(session: Any) -> UserDatabase:
    """Return the database of a session or connection."""
    return _DjangoDatabase(session) if _is_django(session) else _EngineDatabase(_engine_of(session))


def make_table(name: str, metadata: Any = None) -> Table:
    """Return one of the tables, in the user's metadata or in one of its own."""
    from sqlalchemy import Column, DateTime, Float, Integer, MetaData, String, Table, Text, func

    home = MetaData() if metadata is None else metadata
    # A digest: the names in it may be longer than a key may be in some databases.
    mark = Column("mark", String(64), primary_key=True)
    if name == OUTBOX:
        number = Column("number", Integer, primary_key=True, autoincrement=False)
        whose, body = Column("whose", Text, nullable=False), Column("body", Text, nullable=False)
        rest: list[Any] = [number, whose, body, Column("written_at", Float(53), nullable=False)]
    else:
        now = Column("settled_at", DateTime(timezone=True), server_default=func.now(), nullable=False)
        rest = [Column("delivery", Text, nullable=False), Column("origin", Text, nullable=False), now]
    return Table(name, home, mark, *rest, extend_existing=True)


def _is_django(session: Any) -> bool:
    return hasattr(session, "in_atomic_block")


class UserDatabase:
    """The outbox in a user's database after the handler's transaction, read and changed with portable SQL.

    Parameters:
        name: the database's URL without the password, or Django's alias.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def left(self, mark: str) -> list[str]:
        """Return the messages of one delivery, in order."""
        asked = f"SELECT body FROM {OUTBOX} WHERE mark = :mark ORDER BY number"
        return [body for (body,) in self._do(asked, mark=mark)]

    def old(self, whose: str, before: float, most: int) -> dict[str, list[str]]:
        """Return the messages, by delivery, that one group of one Kafka cluster wrote before a Unix time."""
        asked = (
            f"SELECT mark FROM {OUTBOX} WHERE whose = :whose AND written_at < :before ORDER BY written_at LIMIT :most"
        )
        marks = dict.fromkeys(mark for (mark,) in self._do(asked, whose=whose, before=before, most=most))
        return {mark: self.left(mark) for mark in marks}

    def take_out(self, mark: str) -> None:
        """Delete the messages of one delivery: they are published."""
        self._do(f"DELETE FROM {OUTBOX} WHERE mark = :mark", mark=mark)

    def put_behind(self, mark: str, now: float) -> None:
        """Move a delivery's messages behind the others: they could not be published."""
        self._do(f"UPDATE {OUTBOX} SET written_at = :now WHERE mark = :mark", mark=mark, now=now)

    def _do(self, statement: str, **values: Any) -> list[Any]:
        """Run a statement in its own transaction; return nothing if there is no outbox, as handlers that do not publish
        need none.
        """
        raise NotImplementedError


class _EngineDatabase(UserDatabase):
    def __init__(self, engine: Engine) -> None:
        super().__init__(str(engine.url))
        self._engine = engine

    def _do(self, statement: str, **values: Any) -> list[Any]:
        work = partial(self._within, statement, values)
        if self._engine.dialect.is_async:
            return asyncio.run(self._elsewhere(work))
        with self._engine.begin() as connection:
            return work(connection)

    async def _elsewhere(self, work: Callable[[Any], list[Any]]) -> list[Any]:
        """Use separate connections: those of the engine belong to the handlers' event loop."""
        from sqlalchemy import Engine
        from sqlalchemy.ext.asyncio import AsyncEngine

        engine = AsyncEngine(Engine(self._engine.pool.recreate(), self._engine.dialect, self._engine.url))
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(work)
        finally:
            await engine.dispose()

    def _within(self, statement: str, values: RowValues, connection: Any) -> list[Any]:
        from sqlalchemy import inspect, text

        if self.name not in _there and not inspect(connection).has_table(OUTBOX):
            return []
        _there.add(self.name)
        done = connection.execute(text(statement), dict(values))
        return list(done.all()) if done.returns_rows else []


class _DjangoDatabase(UserDatabase):
    def __init__(self, connection: Any) -> None:
        super().__init__(str(connection.alias))
        self._connection = connection

    def _do(self, statement: str, **values: Any) -> list[Any]:
        if self.name not in _there and OUTBOX not in self._connection.introspection.table_names():
            return []
        _there.add(self.name)
        with self._connection.cursor() as cursor:
            cursor.execute(re.sub(r":(\w+)", r"%(\1)s", statement), values)
            return list(cursor.fetchall()) if cursor.description else []


class SessionTransaction:
    """The transaction that a session has when this object is made."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._was = None if _is_django(session) else session.get_transaction()

    @property
    def goes_on(self) -> bool:
        """Return whether the transaction is neither committed nor rolled back."""
        if _is_django(self._session):
            return bool(self._session.in_atomic_block)
        return self._was is not None and self._session.get_transaction() is self._was


def _find_marks(session: Any, marks: Sequence[str]) -> list[str]:
    """Return those of these marks that the session's transaction sees."""
    if _is_django(session):
        _check_transaction(session)
        with session.cursor() as cursor:
            places = ", ".join(["%s"] * len(marks))
            cursor.execute(f"SELECT mark FROM {SETTLED} WHERE mark IN ({places})", list(marks))
            return [mark for (mark,) in cursor.fetchall()]
    from sqlalchemy import select

    found = make_table(SETTLED)
    _make(session, found)
    return list(session.execute(select(found.c.mark).where(found.c.mark.in_(marks))).scalars())


def _check_transaction(connection: Any) -> None:
    if not connection.in_atomic_block:
        raise CannotSettle("settle_with(connection) must be called inside `with transaction.atomic():`.")


def _insert_by_sqlalchemy(session: Any, name: str, rows: Sequence[RowValues]) -> bool:
    from sqlalchemy import exc, insert

    found = make_table(name)
    _make(session, found)
    try:
        if len(rows) == 1:
            session.execute(insert(found).values(**rows[0]))
        else:
            session.execute(insert(found), [dict(row) for row in rows])
    except exc.IntegrityError:
        return False
    return True


def _insert_by_django(connection: Any, name: str, rows: Sequence[RowValues]) -> bool:
    from django.db import IntegrityError

    _check_transaction(connection)
    columns = list(rows[0])
    statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
    try:
        with connection.cursor() as cursor:
            cursor.executemany(statement, [[row[column] for column in columns] for row in rows])
    except IntegrityError:
        return False
    return True


def _engine_of(session: Any) -> Engine:
    engine: Engine = session.get_bind().engine if hasattr(session, "get_bind") else session.engine
    return engine


def _make(session: Any, found: Table) -> None:
    """Create the table if it is missing, in its own transaction: on some databases DDL would end the handler's.

    A session without a connection gets none here: its pool may hold only one.
    """
    from sqlalchemy import exc, inspect

    engine = _engine_of(session)
    if engine.dialect.name == "sqlite":
        # SQLite lets one connection write at a time: a second would wait for the handler's. Its DDL rolls back too.
        found.create(session.connection() if hasattr(session, "get_bind") else session, checkfirst=True)
        return
    key = (str(engine.url), found.name)
    with _making:
        if key in _ready:
            return
        try:
            found.create(engine, checkfirst=True)
        except exc.DBAPIError:
            # Another process was faster, or this user may not create tables.
            if not inspect(engine).has_table(found.name):
                raise
        _ready.add(key)


def missing_django_tables(functions: Iterable[Any]) -> list[str]:
    """Return the tables of ours that Django's migrations have not made and that these handlers' functions need.

    A function needs them if it, or one inside it, calls `settle_with`; with `publish` beside it the outbox too.

    Raises:
        Exception: whatever Django's database raises if it does not answer.
    """
    names = [_names_in(function.__code__) for function in functions if hasattr(function, "__code__")]
    wanted = {SETTLED for found in names if "settle_with" in found}
    wanted |= {OUTBOX for found in names if {"settle_with", "publish"} <= found}
    django, conf = sys.modules.get("django.db"), sys.modules.get("django.conf")
    if not wanted or django is None or conf is None or not conf.settings.configured:
        return []
    return sorted(wanted - set(django.connection.introspection.table_names()))


def _names_in(code: Any) -> set[str]:
    inner = (each for each in code.co_consts if hasattr(each, "co_names"))
    return {*code.co_names}.union(*map(_names_in, inner))


#: The table of marks in the user's database, made on first use or by the user's migration from `table()`.
TABLE: Final = SETTLED
#: The table of messages to publish, made on first use or by the user's migration from `outbox_table()`.
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
        origin: the rest of the identity: the Kafka cluster, the group and the id of the topic's log.

    Raises:
        AlreadySettled: an earlier run has committed its work. Do not catch it: the session is rolled back, and the
            delivery is done.
        CannotSettle: Django's connection has no transaction: the mark would be committed before the work.
    """
    row = {"mark": make_mark(delivery, origin), "delivery": delivery, "origin": origin}
    if not insert_row(session, SETTLED, row):
        raise AlreadySettled(f"{delivery} was committed by an earlier run.")


def settle_all_with(session: Any, deliveries: Mapping[str, tuple[str, str]]) -> set[str]:
    """Write "done" for several deliveries in the session's transaction; return the marks that are there already.

    If there are any, nothing is written.

    Parameters:
        session: as for `settle_with`.
        deliveries: identity and origin, by mark (`make_mark`).

    Raises:
        AlreadySettled: another transaction has just committed some of them.
        CannotSettle: as `settle_with`.
    """
    # One order for all: two transactions with the same marks must not wait for each other.
    marks = sorted(deliveries)
    found: set[str] = set()
    for start in range(0, len(marks), MARKS_AT_ONCE):
        found.update(_find_marks(session, marks[start : start + MARKS_AT_ONCE]))
    if found:
        return found
    rows = [{"mark": mark, "delivery": deliveries[mark][0], "origin": deliveries[mark][1]} for mark in marks]
    if rows and not insert_rows(session, SETTLED, rows):
        raise AlreadySettled(f"Some of {len(rows)} deliveries were committed by another run at this moment.")
    return set()


def put_in_outbox(session: Any, mark: str, number: int, whose: str, body: str) -> None:
    """Write a message that a handler sends in the session's transaction, as `settle_with` does with its mark.

    Parameters:
        mark: the delivery's key (`make_mark`).
        number: which of its messages, from 0.
        whose: the Kafka cluster and the group of the delivery.
    """
    row = {"mark": mark, "number": number, "whose": whose, "body": body, "written_at": time.time()}
    insert_row(session, OUTBOX, row)


def make_mark(delivery: str, origin: str) -> str:
    """Return the key of a delivery's rows in the user's database."""
    return hashlib.sha256(f"{origin} {delivery}".encode()).hexdigest()


def table(metadata: Any = None) -> Any:
    """Return the table of marks (SQLAlchemy's `Table`), in the user's metadata or in its own."""
    return make_table(SETTLED, metadata)


def outbox_table(metadata: Any = None) -> Any:
    """Return the table of messages to publish, in the user's metadata or in its own."""
    return make_table(OUTBOX, metadata)
