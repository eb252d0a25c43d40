"""What a handler sends lies in the transaction of Django's own connection, on SQLite and PostgreSQL."""

from typing import Any

import pytest
from django.db import transaction

from bridge.errors import AlreadySettled, CannotSettle
from bridge.formats import user_database
from bridge.formats.delivery import Message
from bridge.formats.user_database import CREATE_OUTBOX_TABLE
from tests.contract.test_settlement_mark_django import connection as with_marks

__all__ = ["with_marks"]


@pytest.fixture
def connection(with_marks: Any) -> Any:
    user_database._there.clear()
    with with_marks.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bridge_outbox")
        cursor.execute(CREATE_OUTBOX_TABLE)
    return with_marks


def message() -> Message:
    return Message("orders", 0, 7, delivery="orders-0-7:charge", origin="cluster group topic-1")


def bill(connection: Any, given: Message) -> None:
    with transaction.atomic(using=connection.alias):
        given.settle_with(connection)
        given.publish("invoices", {"total": 3}, key="k")


def test_a_run_after_a_crash_finds_what_was_committed_and_not_published(connection):
    first, again = message(), message()
    bill(connection, first)
    with pytest.raises(AlreadySettled):
        bill(connection, again)
    assert first.outbox is not None
    assert again.outbox is not None
    assert again.outbox.left() == first.outbox.messages
    again.outbox.published()
    assert again.outbox.left() == []


def test_without_a_transaction_nothing_is_written(connection):
    given = message()
    with pytest.raises(CannotSettle):
        given.settle_with(connection)
    assert user_database.find_user_database(connection).left("any") == []
