"""What a handler sends lies in its own transaction, on each database that is tried."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from bridge.errors import AlreadySettled, CannotSettle
from bridge.formats import user_database
from bridge.formats.delivery import Message
from tests.servers import postgres
from tests.servers.missing import need
from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    user_database._ready.clear()
    user_database._there.clear()
    if request.param == "sqlite":
        made = create_engine(f"sqlite:///{tmp_path}/work.sqlite")
        yield made
        made.dispose()
        return
    need(postgres.missing())
    with PostgresServer() as server:
        made = create_engine(server.url)
        yield made
        made.dispose()


def message(offset: int = 7, **more: Any) -> Message:
    return Message("orders", 0, offset, delivery=f"orders-0-{offset}:charge", **{"origin": "c g topic-1", **more})


def bill(engine: Engine, given: Message) -> None:
    with Session(engine) as session, session.begin():
        given.publish("before", b"1")
        given.settle_with(session)
        given.publish("invoices", {"total": 3}, key="k", headers={"kind": "first"})


def test_what_a_handler_sends_commits_with_its_work(engine):
    given = message()
    bill(engine, given)
    assert given.outbox is not None
    home = user_database.find_user_database(engine.connect())
    assert len(home.left(given.outbox.mark)) == 2
    assert [each.topic for each in given.outbox.left()] == ["before", "invoices"]


def test_a_run_after_a_crash_finds_what_was_committed_and_not_published(engine):
    first, again = message(), message()
    bill(engine, first)
    with pytest.raises(AlreadySettled):
        bill(engine, again)
    assert first.outbox is not None
    assert again.outbox is not None
    assert again.outbox.left() == first.outbox.messages
    again.outbox.published()
    assert again.outbox.left() == []


def test_what_is_rolled_back_is_not_there(engine):
    given = message()
    with Session(engine) as session:
        given.settle_with(session)
        given.publish("invoices", b"1")
        session.rollback()
    assert given.outbox is not None
    assert given.outbox.home is not None
    assert given.outbox.home.left(given.outbox.mark) == []


def test_what_nobody_published_is_found_after_a_while(engine):
    given = message()
    bill(engine, given)
    assert given.outbox is not None
    assert given.outbox.home is not None
    home = given.outbox.home
    assert home.old("c g", time.time() - 60, 10) == {}
    assert list(home.old("c g", time.time() + 60, 10)) == [given.outbox.mark]
    given.outbox.published()
    assert home.old("c g", time.time() + 60, 10) == {}


def test_a_database_without_an_outbox_has_none_left(engine):
    with Session(engine) as session, session.begin():
        given = message()
        given.settle_with(session)
    again = message()
    with pytest.raises(AlreadySettled), Session(engine) as session, session.begin():
        again.settle_with(session)
    assert again.outbox is not None
    assert again.outbox.left() == []
    again.outbox.published()


def test_the_tables_may_be_made_by_a_migration(engine):
    with engine.begin() as connection:
        connection.execute(text(user_database.CREATE_TABLE))
        connection.execute(text(user_database.CREATE_OUTBOX_TABLE))
    given = message()
    bill(engine, given)
    assert given.outbox is not None
    assert len(given.outbox.left()) == 2


def test_what_another_group_or_kafka_left_is_not_this_ones(engine):
    bill(engine, message())
    bill(engine, message(8, origin="c other topic-1"))
    home = user_database.find_user_database(engine.connect())
    assert len(home.old("c g", time.time() + 60, 10)) == 1


def test_what_could_not_be_published_is_looked_at_after_others(engine):
    first, second = message(7), message(8)
    bill(engine, first)
    bill(engine, second)
    assert first.outbox is not None
    assert second.outbox is not None
    home = user_database.find_user_database(engine.connect())
    home.put_behind(first.outbox.mark, time.time() + 5)
    assert list(home.old("c g", time.time() + 60, 10)) == [second.outbox.mark, first.outbox.mark]


def test_a_transaction_that_is_tried_again_sends_what_the_last_one_sends(engine):
    given = message()
    given.publish("before", b"0")
    with Session(engine) as session:
        for number in range(3):
            given.settle_with(session)
            given.publish("invoices", {"try": number})
            if number < 2:
                session.rollback()
        session.commit()
    assert given.outbox is not None
    assert [each.value for each in given.outbox.left()] == [b"0", b'{"try":2}']
    assert [each.id.partition("@")[0] for each in given.outbox.left()] == ["orders-0-7:charge:0", "orders-0-7:charge:1"]


def test_what_a_savepoint_took_back_is_not_sent(engine):
    given = message()
    with Session(engine) as session, session.begin():
        given.settle_with(session)
        given.publish("invoices", b"1")
        with session.begin_nested() as savepoint:
            given.publish("invoices", b"2")
            savepoint.rollback()
    assert given.outbox is not None
    assert [each.value for each in given.outbox.left()] == [b"1"]


def test_after_the_transaction_nothing_can_be_sent_and_it_is_said(engine):
    given = message()
    with Session(engine) as session:
        with session.begin():
            given.settle_with(session)
        with pytest.raises(CannotSettle, match="call it before the commit"):
            given.publish("invoices", b"1")
    assert given.outbox is not None
    assert given.outbox.left() == []
