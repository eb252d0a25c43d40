"""Handlers that are async, and run side by side; celeryconfig is tests/handlers/chosen.py."""

import asyncio
import os
import signal
from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic


@handler(topic("beside"), name="beside", batch=100, concurrency=50, soft_time_limit=2, time_limit=4, max_retries=0)
async def beside(order: Any, message: Message) -> None:
    """`order["seconds"]` is how long it waits; with `deaf` nothing but the hard limit ends it."""
    note("beside", message, order, "begun")
    if order.get("kills"):
        await asyncio.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        await asyncio.sleep(order["seconds"])
    except asyncio.CancelledError:
        if not order.get("deaf"):
            raise
        await asyncio.sleep(60)
    note("beside", message, order)


@handler(topic("waits"), name="waits", concurrency="auto")
async def waits(order: Any, message: Message) -> None:
    """It waits most of its time."""
    note("waits", message, order, "begun")
    await asyncio.sleep(order["seconds"])
    note("waits", message, order)
