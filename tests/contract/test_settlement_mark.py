"""A delivery's mark in the user's own database, on each database that is tried: SQLite and PostgreSQL."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from bridge.errors import AlreadySettled
from bridge.formats import user_database
from bridge.formats.delivery import Message
from tasks import Messages
from tests.servers.postgres import PostgresServer


@pytest.fixture
def postgresql(postgres_server: PostgresServer) -> Iterator[Engine]:
    yield from _empty(create_engine(postgres_server.url))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    yield from _empty(create_engine(f"sqlite:///{tmp_path}/work.sqlite"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.servers)])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def _empty(engine: Engine) -> Iterator[Engine]:
    """A database with a table for work, and none for the marks."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS bridge_settled"))
        connection.execute(text("DROP TABLE IF EXISTS bridge_outbox"))
        connection.execute(text("DROP TABLE IF EXISTS payments"))
        connection.execute(text("CREATE TABLE payments (id INTEGER)"))
    user_database._ready.clear()
    user_database._there.clear()
    yield engine
    engine.dispose()


def message(offset: int = 7, **more: Any) -> Message:
    name = f"orders-0-{offset}:charge"
    return Message("orders", 0, offset, delivery=name, **{"origin": "cluster group topic-1", **more})


def pay(engine: Engine, given: Message) -> None:
    with Session(engine) as session, session.begin():
        given.settle_with(session)
        session.execute(text("INSERT INTO payments VALUES (:id)"), {"id": given.offset})


def payments(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT id FROM payments")).scalars())


def test_work_that_was_committed_is_not_done_again(engine):
    pay(engine, message())
    with pytest.raises(AlreadySettled, match="orders-0-7:charge was committed by an earlier run"):
        pay(engine, message())
    pay(engine, message(8))
    assert payments(engine) == [7, 8]


def test_a_mark_of_work_that_was_rolled_back_does_not_count(engine):
    with Session(engine) as session:
        message().settle_with(session)
        session.rollback()
    pay(engine, message())
    assert payments(engine) == [7]


@pytest.mark.parametrize(
    "origin",
    ["cluster group topic-2", "cluster other topic-1", "other group topic-1"],
    ids=["a topic made again", "another group", "another Kafka"],
)
def test_a_delivery_of_the_same_name_from_elsewhere_is_another(engine, origin):
    pay(engine, message())
    pay(engine, message(origin=origin))
    assert payments(engine) == [7, 7]


def test_a_connection_will_do_for_a_session(engine):
    for _ in range(2):
        with engine.connect() as connection:
            message().settle_with(connection)
            connection.rollback()
    with engine.begin() as connection:
        message().settle_with(connection)
    with pytest.raises(AlreadySettled), engine.begin() as connection:
        message().settle_with(connection)


def test_one_connection_is_enough(postgresql):
    alone = create_engine(postgresql.url, pool_size=1, max_overflow=0, pool_timeout=2)
    pay(alone, message())
    pay(alone, message(8))
    alone.dispose()
    assert payments(postgresql) == [7, 8]


def test_a_table_that_a_migration_made_is_used(engine):
    metadata = MetaData()
    user_database.table(metadata)
    metadata.create_all(engine)
    pay(engine, message())
    assert payments(engine) == [7]


def test_a_process_that_finds_another_making_the_table_uses_that_one(postgresql):
    with ThreadPoolExecutor(1) as pool:
        with postgresql.begin() as faster:
            user_database.table().create(faster)
            slower = pool.submit(pay, postgresql, message())
            with pytest.raises(TimeoutError):
                slower.result(0.3)
        slower.result(10)
    assert payments(postgresql) == [7]


def test_of_two_runs_at_once_the_second_waits_and_does_nothing_if_the_first_commits(postgresql):
    pay(postgresql, message(1))  # the table is there
    for commits in (False, True):
        with Session(postgresql) as first, ThreadPoolExecutor(1) as pool:
            message(2 + commits).settle_with(first)
            second = pool.submit(pay, postgresql, message(2 + commits))
            with pytest.raises(TimeoutError):
                second.result(0.3)
            if commits:
                first.execute(text("INSERT INTO payments VALUES (3)"))
                first.commit()
                with pytest.raises(AlreadySettled):
                    second.result(10)
            else:
                first.rollback()
                second.result(10)
    assert payments(postgresql) == [1, 2, 3]


def test_a_user_who_may_not_make_the_table_is_told_so(postgresql):
    with postgresql.begin() as connection:
        connection.execute(text("DROP ROLE IF EXISTS reader"))
        connection.execute(text("CREATE ROLE reader LOGIN"))
    other = create_engine(postgresql.url.set(username="reader"))
    with pytest.raises(SQLAlchemyError, match="permission denied"):
        pay(other, message())
    other.dispose()


def pay_all(engine: Engine, given: Messages) -> None:
    with Session(engine) as session, session.begin():
        given.settle_with(session)
        session.execute(text("INSERT INTO payments VALUES (:id)"), [{"id": each.offset} for each in given])


def test_many_are_marked_in_one_transaction_and_those_committed_before_are_named(engine):
    pay_all(engine, Messages([message(offset) for offset in range(10, 1_510)]))
    assert len(payments(engine)) == 1_500
    given = Messages([message(offset) for offset in (9, 10, 1_509, 1_510)])
    with pytest.raises(AlreadySettled, match=r"2 of 4 deliveries were committed by an earlier run"):
        pay_all(engine, given)
    assert [each.offset for each in given if each.outbox is not None and each.outbox.committed_before] == [10, 1_509]
    pay_all(engine, Messages([message(9), message(1_510)]))
    assert payments(engine) == list(range(9, 1_511))


def test_of_two_transactions_with_the_same_deliveries_one_commits(postgresql):
    def run(offsets: list[int]) -> str:
        try:
            pay_all(postgresql, Messages([message(offset) for offset in offsets]))
        except AlreadySettled:
            return "settled already"
        return "paid"

    user_database.table().create(postgresql)
    with ThreadPoolExecutor(2) as pool:
        ends = [*pool.map(run, [[*range(300)], [*reversed(range(300))]])]
    assert sorted(ends) == ["paid", "settled already"]
    assert payments(postgresql) == list(range(300))


def test_a_message_published_by_one_of_many_is_in_the_outbox_with_the_work(engine):
    given = Messages([message(1), message(2)])
    with Session(engine) as session, session.begin():
        given[0].publish("invoices", {"of": 1})
        given.settle_with(session)
        given[1].publish("invoices", {"of": 2})
    boxes = [each.outbox for each in given]
    assert [[sent.value for sent in box.left()] for box in boxes if box] == [[b'{"of":1}'], [b'{"of":2}']]
