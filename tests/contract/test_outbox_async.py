"""What a handler with an AsyncSession sends."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from bridge.errors import AlreadySettled
from bridge.formats import user_database
from bridge.formats.delivery import Message
from tests.contract.test_outbox import message


async def _bill(engine: AsyncEngine, given: Message) -> None:
    async with AsyncSession(engine) as session, session.begin():
        given.publish("invoices", b"1")
        await session.run_sync(given.settle_with)


def test_an_async_session_will_do_for_one(tmp_path: Path):
    user_database._there.clear()
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/work.sqlite")
    first, again = message(), message()
    # A process keeps one event loop for its handlers, and is outside of it when they have ended.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_bill(engine, first))
    with pytest.raises(AlreadySettled):
        loop.run_until_complete(_bill(engine, again))
    assert again.outbox is not None
    assert [each.value for each in again.outbox.left()] == [b"1"]
    again.outbox.published()
    assert again.outbox.left() == []
    loop.run_until_complete(engine.dispose())
    loop.close()
