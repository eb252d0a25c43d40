"""`bridge deadletters shadow --allow-database`: nothing that a handler writes in a real PostgreSQL is committed;
`--allow-host`: a service is reached by name alone.
"""

import importlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery import Celery
from sqlalchemy import NullPool, create_engine

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.kind_rows import IdCache
from bridge.deadletters.db.letter_writer import LetterWriter
from bridge.formats.user_database import SETTLED, make_table
from tasks.declaration import app_setup
from tasks.declaration.celery_defaults import OWN_DEFAULTS
from tests.desk.commands import Commands
from tests.desk.letters import letter
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.parametrize("new_database", ["sqlite"], indirect=True), pytest.mark.servers]

HANDLERS = """
import asyncio
import os
import socket

import psycopg
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tasks import Message, handler

URL = os.environ["SHADOW_URL"]
CONNINFO = URL.replace("+psycopg", "")
engine = create_engine(URL)
autocommit = create_engine(URL, isolation_level="AUTOCOMMIT")
# Its connection is the parent's.
with engine.connect() as first:
    first.execute(text("SELECT 1"))

INSERT = "INSERT INTO paid VALUES (%s)"


def count(connection):
    return connection.execute("SELECT count(*) FROM paid").fetchone()[0]


@handler("orders")
def commits(order):
    with psycopg.connect(CONNINFO) as connection:
        connection.execute(INSERT, [order["id"]])
        connection.commit()
        connection.execute(INSERT, [order["id"] + 1])
        connection.rollback()
        assert count(connection) == 2


@handler("orders")
def in_autocommit(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute(INSERT, [order["id"]])
        with connection.transaction():
            connection.execute(INSERT, [order["id"] + 1])
        connection.autocommit = False
        connection.execute(INSERT, [order["id"] + 2])
        connection.rollback()
        assert count(connection) == 3


@handler("orders")
def in_blocks(order):
    with psycopg.connect(CONNINFO) as connection:
        with connection.transaction():
            connection.execute(INSERT, [order["id"]])
            try:
                with connection.transaction():
                    connection.execute(INSERT, [order["id"] + 1])
                    raise KeyError
            except KeyError:
                pass
        assert count(connection) == 2


@handler("orders")
def by_sqlalchemy(order):
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})
    with autocommit.connect() as connection:
        connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM paid")).scalar_one() == 2


@handler("orders")
async def by_async_sqlalchemy(order):
    own = create_async_engine(URL)
    async with own.begin() as connection:
        await connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})


@handler("orders")
def settles(order, message: Message):
    with engine.begin() as connection:
        message.settle_with(connection)
        connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})


@handler("orders")
def fails(order):
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO paid VALUES (:id)"), {"id": order["id"]})
        raise ValueError("it is too late")


@handler("orders")
def breaks_key(order):
    with psycopg.connect(CONNINFO) as connection:
        connection.execute(INSERT, [0])


@handler("orders")
def says_commit(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute(INSERT, [order["id"]])
        try:
            connection.execute("COMMIT")
        except psycopg.Error:
            pass
        try:
            connection.execute(INSERT, [order["id"]])
        except psycopg.Error:
            pass


@handler("orders")
def says_all(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute(f"INSERT INTO paid VALUES ({order['id']}); COMMIT; INSERT INTO paid VALUES (99)")


@handler("orders")
def says_rollback(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute("ROLLBACK")
        connection.execute(INSERT, [order["id"]])


@handler("orders")
def notifies(order):
    with psycopg.connect(CONNINFO) as connection:
        connection.execute("NOTIFY payments, 'paid'")


@handler("orders")
def vacuums(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute("VACUUM paid")


@handler("orders")
def hangs(order):
    with psycopg.connect(CONNINFO, autocommit=True) as connection:
        connection.execute(INSERT, [order["id"]])
        connection.execute("SELECT pg_sleep(30)")


@handler("orders")
def kills_itself(order):
    connection = psycopg.connect(CONNINFO, autocommit=True)
    connection.execute(INSERT, [order["id"]])
    os._exit(0)


@handler("orders")
def asks(order):
    with socket.create_connection((order["host"], order["port"]), 2) as connection:
        connection.sendall(b"may I?")
        assert connection.recv(10) == b"yes"


@handler("orders")
async def asks_async(order):
    reader, writer = await asyncio.open_connection(order["host"], order["port"])
    writer.write(b"may I?")
    await writer.drain()
    assert await reader.read(10) == b"yes"
    writer.close()
"""


class ConnectedShop:
    """Dead letters of the handlers above, and the PostgreSQL that these write to."""

    def __init__(self, url: str, database: Database, commands: Commands) -> None:
        self._database, self._commands = database, commands
        self.connection = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
        self.address = f"{self.connection.info.host}:{self.connection.info.port}"
        self.connection.execute("CREATE TABLE paid (id int PRIMARY KEY)")
        self.connection.execute("INSERT INTO paid VALUES (0)")
        # As an earlier run of a worker has made it.
        with closing(create_engine(url, poolclass=NullPool).connect()) as own:
            make_table(SETTLED).create(own)
            own.commit()
        self._count = 0

    def judge(self, handler: str, *words: str, **value: Any) -> dict[str, Any]:
        """Run letters of a handler; nothing may have changed in PostgreSQL, also when all its sessions have ended."""
        name = f"shadow_bank.handlers.{handler}"
        made = []
        for number in (5, 50):
            self._count += 1
            made.append(letter(self._count, handler=name, value=json.dumps({"id": number} | value).encode()))
        with self._database.writing() as connection:
            LetterWriter(connection, IdCache(), 5_000_000, 1_000_000).record(made)
        ended = self._commands.run("shadow", "--json", "--handler", name, "--letter-seconds", "3", *words)
        assert self.connection.execute("SELECT array_agg(id) FROM paid").fetchone() == ([0],), ended.output
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


@pytest.fixture
def bank(
    tmp_path: Path,
    database: Database,
    database_url: str,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ConnectedShop]:
    url = postgres_server.new_database()
    monkeypatch.setenv("SHADOW_URL", url)
    package = tmp_path / "shadow_bank"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "handlers.py").write_text(HANDLERS)
    app = Celery("shadow", broker="redis://127.0.0.1:1", set_as_current=False)
    app.conf.update(OWN_DEFAULTS)
    monkeypatch.setattr(app_setup, "_used", [app])
    monkeypatch.syspath_prepend(tmp_path)
    handlers = importlib.import_module("shadow_bank.handlers")
    shop = ConnectedShop(url, database, Commands(monkeypatch, database_url, app))
    yield shop
    shop.connection.close()
    app.close()
    handlers.engine.dispose()
    for name in [name for name in sys.modules if name.split(".")[0] == "shadow_bank"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "handler", ["commits", "in_autocommit", "in_blocks", "by_async_sqlalchemy", "settles", "notifies"]
)
def test_a_handler_sees_its_commits_and_nobody_else_does(bank: ConnectedShop, handler: str):
    bank.connection.execute("LISTEN payments")
    found = bank.judge(handler, "--allow-database", bank.address)
    assert (found["passed"], found["failed"], found["unknown"]) == (2, 0, 0), json.dumps(found)
    assert found["rolled_back"] == [bank.address]
    assert any("nothing was committed" in limit for limit in found["limits"])
    assert [*bank.connection.notifies(timeout=0)] == []
    assert bank.connection.execute("SELECT count(*) FROM bridge_settled").fetchone() == (0,)


@pytest.mark.parametrize(
    ("handler", "error"), [("fails", "ValueError"), ("breaks_key", "psycopg.errors.UniqueViolation")]
)
def test_a_failure_is_counted_as_one(bank: ConnectedShop, handler: str, error: str):
    found = bank.judge(handler, "--allow-database", bank.address)
    assert [(each["count"], each["error_class"]) for each in found["failures"]] == [(2, error)]


@pytest.mark.parametrize("handler", ["says_commit", "says_all", "says_rollback", "vacuums", "hangs", "by_sqlalchemy"])
def test_what_cannot_be_held_is_not_judged_and_the_server_commits_nothing(bank: ConnectedShop, handler: str):
    found = bank.judge(handler, "--allow-database", bank.address)
    assert (found["passed"], found["failed"], found["unknown"]) == (0, 0, 2), json.dumps(found)


def test_a_process_that_ends_itself_leaves_nothing(bank: ConnectedShop):
    assert bank.judge("kills_itself", "--allow-database", bank.address)["failed"] == 2


def test_a_database_that_is_not_allowed_is_named_and_not_reached(bank: ConnectedShop):
    found = bank.judge("commits")
    assert found["unknown"] == 2
    assert f"--allow-database {bank.address} lets it, and rolls all back" in found["unknown_reasons"][0]["why"]
    assert "tests@" not in json.dumps(found)


@pytest.fixture
def service() -> Iterator[tuple[int, list[bytes]]]:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    received.append(connection.recv(100))
                    connection.sendall(b"yes")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], received
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("handler", ["asks", "asks_async"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_service_that_is_allowed_by_name_is_reached_and_said(
    bank: ConnectedShop, service: tuple[int, list[bytes]], handler: str, host: str
):
    port, received = service
    found = bank.judge(handler, "--allow-host", f"localhost:{port}", host=host, port=port)
    assert found["passed"] == 2, found
    assert received == [b"may I?"] * 2
    assert found["reached"] == [f"localhost:{port}"]
    assert any("were not taken back" in limit for limit in found["limits"])


def test_another_port_of_an_allowed_name_is_refused(bank: ConnectedShop, service: tuple[int, list[bytes]]):
    port, received = service
    found = bank.judge("asks", "--allow-host", f"localhost:{port + 1}", host="localhost", port=port)
    assert (found["unknown"], received) == (2, [])
    assert f"it opens a connection to localhost:{port}." in found["unknown_reasons"][0]["why"]


def test_an_allowed_host_does_not_let_a_database_driver_commit(bank: ConnectedShop):
    assert bank.judge("commits", "--allow-host", bank.address)["unknown"] == 2
