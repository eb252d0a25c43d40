"""A delivery's mark in the transaction of Django's own connection, on SQLite and PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections, transaction

from bridge.errors import AlreadySettled, BridgeError
from bridge.formats.delivery import Message
from bridge.formats.user_database import CREATE_TABLE, OUTBOX_TABLE, TABLE, missing_django_tables
from tasks import Messages
from tests.servers.postgres import PostgresServer

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


def _database(engine: str, name: str, **more: Any) -> dict[str, Any]:
    return {**connections.databases["default"], "ENGINE": f"django.db.backends.{engine}", "NAME": name, **more}


@pytest.fixture(params=["sqlite3", pytest.param("postgresql", marks=pytest.mark.servers)])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A connection to a database with a table for work, and one for the marks, as its migrations would make them."""
    engine = request.param
    if engine == "sqlite3":
        chosen = _database(engine, str(tmp_path / "work.sqlite"))
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        chosen = _database(engine, "postgres", HOST="127.0.0.1", PORT=str(server.port), USER="tests")
    connections.databases[engine] = chosen
    made = connections[engine]
    with made.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute("DROP TABLE IF EXISTS payments")
        cursor.execute("CREATE TABLE payments (id integer)")
        cursor.execute(CREATE_TABLE)
    yield made
    made.close()
    del connections[engine]
    del connections.databases[engine]


MESSAGE = Message("orders", 0, 7, delivery="orders-0-7:charge", origin="cluster group topic-1")


def pay(connection: Any) -> None:
    with transaction.atomic(using=connection.alias):
        MESSAGE.settle_with(connection)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO payments VALUES (%s)", [MESSAGE.offset])


def payments(connection: Any) -> list[tuple[int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM payments")
        return list(cursor.fetchall())


def test_work_that_was_committed_is_not_done_again(connection: Any):
    pay(connection)
    with pytest.raises(AlreadySettled, match="orders-0-7:charge was committed by an earlier run"):
        pay(connection)
    assert payments(connection) == [(7,)]


def test_a_mark_of_work_that_was_rolled_back_does_not_count(connection: Any):
    with transaction.atomic(using=connection.alias):
        MESSAGE.settle_with(connection)
        transaction.set_rollback(True, using=connection.alias)
    pay(connection)
    assert payments(connection) == [(7,)]


def test_without_a_transaction_nothing_is_marked(connection: Any):
    with pytest.raises(BridgeError, match=r"inside `with transaction\.atomic"):
        MESSAGE.settle_with(connection)
    pay(connection)


def some_messages(*offsets: int) -> Messages:
    return Messages(
        [Message("orders", 0, at, delivery=f"orders-0-{at}:charge", origin="cluster group topic-1") for at in offsets]
    )


def test_many_are_marked_in_one_transaction_and_those_committed_before_are_named(connection: Any):
    with transaction.atomic(using=connection.alias):
        some_messages(*range(700)).settle_with(connection)
    given = some_messages(699, 700)
    with (
        pytest.raises(AlreadySettled, match="1 of 2 deliveries were committed by an earlier run"),
        transaction.atomic(using=connection.alias),
    ):
        given.settle_with(connection)
    assert [each.outbox.committed_before for each in given if each.outbox is not None] == [True, False]
    with pytest.raises(BridgeError, match=r"inside `with transaction\.atomic"):
        some_messages(701).settle_with(connection)


def settling(order: Any, message: Message) -> None:
    def work() -> None:
        message.settle_with(order)

    work()


def sending(order: Any, message: Message) -> None:
    message.settle_with(order)
    message.publish("invoices", order)


def plain(order: Any, message: Message) -> None:
    message.publish("invoices", order)


def test_tables_that_handlers_need_and_no_migration_has_made_are_named(tmp_path: Path):
    before = connections.databases["default"]
    connections.databases["default"] = _database("sqlite3", str(tmp_path / "default.sqlite"))
    made = connections["default"]
    try:
        assert missing_django_tables([plain]) == []
        assert missing_django_tables([plain, settling]) == [TABLE]
        assert missing_django_tables([sending]) == [OUTBOX_TABLE, TABLE]
        with made.cursor() as cursor:
            cursor.execute(CREATE_TABLE)
        assert missing_django_tables([settling]) == []
        assert missing_django_tables([sending]) == [OUTBOX_TABLE]
    finally:
        made.close()
        del connections["default"]
        connections.databases["default"] = before
