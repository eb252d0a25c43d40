"""The tables of ours in the user's own database: the only SQL of the hand-off.

By SQLAlchemy, or by Django's own connection: a transaction belongs to the library that began it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from bridge.errors import CannotSettle

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

#: The tables in the user's database; made on first use, or by a migration of the user's.
SETTLED: Final = "bridge_settled"
OUTBOX: Final = "bridge_outbox"

#: For Django, whose tables its migrations make.
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
    body text NOT NULL,
    written_at double precision NOT NULL,
    PRIMARY KEY (mark, number)
)"""

_ready: set[tuple[str, str]] = set()
_there: set[tuple[str, str]] = set()
_making = threading.Lock()

Row = Mapping[str, Any]


class Home(Protocol):
    """A user's database, after the handler's transaction: what lies in its outbox.

    Attributes:
        name: which database it is; without a password.
    """

    @property
    def name(self) -> str: ...

    def left(self, mark: str) -> list[str]:
        """What of one delivery lies there, in order."""

    def old(self, before: float, most: int) -> dict[str, list[str]]:
        """By delivery, what has lain there since before some moment (Unix time)."""

    def take_out(self, mark: str) -> None:
        """Forget what of one delivery lies there: it is published."""


def insert(session: Any, name: str, row: Row) -> bool:
    """Insert a row in the session's transaction; return whether none of its key was there.

    Parameters:
        session: a SQLAlchemy session or connection with the handler's transaction, or Django's `connection` inside
            `transaction.atomic()`.
        name: `SETTLED` or `OUTBOX`.

    Raises:
        CannotSettle: Django's connection has no transaction: the row would be committed before the work.
    """
    return (_insert_by_django if _is_django(session) else _insert_by_sqlalchemy)(session, name, row)


def home_of(session: Any) -> Home:
    """The database of a session or connection."""
    return _DjangoHome(session) if _is_django(session) else _EngineHome(_engine_of(session))


def table(name: str, metadata: Any = None) -> Table:
    """One of the tables, in a metadata of the user's or in one of its own."""
    from sqlalchemy import Column, DateTime, Float, Integer, MetaData, String, Table, Text, func

    home = MetaData() if metadata is None else metadata
    # A digest: the names in it may be longer than what databases take for a key.
    mark = Column("mark", String(64), primary_key=True)
    if name == OUTBOX:
        number = Column("number", Integer, primary_key=True, autoincrement=False)
        rest: list[Any] = [
            number,
            Column("body", Text, nullable=False),
            Column("written_at", Float(53), nullable=False),
        ]
    else:
        now = Column("settled_at", DateTime(timezone=True), server_default=func.now(), nullable=False)
        rest = [Column("delivery", Text, nullable=False), Column("origin", Text, nullable=False), now]
    return Table(name, home, mark, *rest, extend_existing=True)


def _is_django(session: Any) -> bool:
    return hasattr(session, "in_atomic_block")


class _EngineHome:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = str(engine.url)

    def left(self, mark: str) -> list[str]:
        from sqlalchemy import select

        if not self._has_outbox():
            return []
        rows = table(OUTBOX)
        with self._engine.connect() as connection:
            asked = select(rows.c.body).where(rows.c.mark == mark).order_by(rows.c.number)
            return list(connection.execute(asked).scalars())

    def old(self, before: float, most: int) -> dict[str, list[str]]:
        from sqlalchemy import select

        if not self._has_outbox():
            return {}
        rows = table(OUTBOX)
        with self._engine.connect() as connection:
            asked = select(rows.c.mark).where(rows.c.written_at < before).order_by(rows.c.written_at).limit(most)
            marks = list(dict.fromkeys(connection.execute(asked).scalars()))
        return {mark: self.left(mark) for mark in marks}

    def take_out(self, mark: str) -> None:
        from sqlalchemy import delete

        if self._has_outbox():
            rows = table(OUTBOX)
            with self._engine.begin() as connection:
                connection.execute(delete(rows).where(rows.c.mark == mark))

    def _has_outbox(self) -> bool:
        """Who sends nothing needs no table for it."""
        from sqlalchemy import inspect

        key = (str(self._engine.url), OUTBOX)
        if key not in _there and inspect(self._engine).has_table(OUTBOX):
            _there.add(key)
        return key in _there


class _DjangoHome:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.name = str(connection.alias)

    def left(self, mark: str) -> list[str]:
        if not self._has_outbox():
            return []
        return [body for (body,) in self._do(f"SELECT body FROM {OUTBOX} WHERE mark = %s ORDER BY number", [mark])]

    def old(self, before: float, most: int) -> dict[str, list[str]]:
        if not self._has_outbox():
            return {}
        asked = f"SELECT mark FROM {OUTBOX} WHERE written_at < %s ORDER BY written_at LIMIT {int(most)}"
        return {mark: self.left(mark) for (mark,) in self._do(asked, [before])}

    def take_out(self, mark: str) -> None:
        if self._has_outbox():
            self._do(f"DELETE FROM {OUTBOX} WHERE mark = %s", [mark])

    def _has_outbox(self) -> bool:
        key = (self._connection.alias, OUTBOX)
        if key not in _there and OUTBOX in self._connection.introspection.table_names():
            _there.add(key)
        return key in _there

    def _do(self, statement: str, values: list[Any]) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []


def _insert_by_sqlalchemy(session: Any, name: str, row: Row) -> bool:
    from sqlalchemy import exc, insert

    found = table(name)
    _make(session, found)
    try:
        session.execute(insert(found).values(**row))
    except exc.IntegrityError:
        return False
    return True


def _insert_by_django(connection: Any, name: str, row: Row) -> bool:
    from django.db import IntegrityError

    if not connection.in_atomic_block:
        raise CannotSettle("settle_with(connection) must be called inside `with transaction.atomic():`.")
    places = ", ".join(["%s"] * len(row))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({places})", list(row.values()))
    except IntegrityError:
        return False
    return True


def _engine_of(session: Any) -> Engine:
    engine: Engine = session.get_bind().engine if hasattr(session, "get_bind") else session.engine
    return engine


def _make(session: Any, found: Table) -> None:
    """Make the table if it is missing, in a transaction of its own: DDL would end the handler's on some databases.

    A session that has no connection yet gets none here: its pool may have but one.
    """
    from sqlalchemy import exc, inspect

    engine = _engine_of(session)
    if engine.dialect.name == "sqlite":
        # It lets one connection write at a time: a second would wait for the handler's. Here DDL rolls back too.
        found.create(session.connection() if hasattr(session, "get_bind") else session, checkfirst=True)
        return
    key = (str(engine.url), found.name)
    with _making:
        if key in _ready:
            return
        try:
            found.create(engine, checkfirst=True)
        except exc.DBAPIError:
            # Another process was faster, or this user may not make tables.
            if not inspect(engine).has_table(found.name):
                raise
        _ready.add(key)
