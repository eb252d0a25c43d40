"""Handlers with time limits, each for one message; celeryconfig is tests/handlers/chosen.py."""

import time
from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic


@handler(topic("limited"), name="limited", batch=50, soft_time_limit=1, time_limit=2, max_retries=0)
def limited(order: Any, message: Message) -> None:
    """`order["seconds"]` is how long it takes; with `deaf` nothing but the hard limit ends it."""
    note("limited", message, order, "begun")
    try:
        time.sleep(order["seconds"])
    except Exception:
        if not order.get("deaf"):
            raise
        time.sleep(60)
    note("limited", message, order)


@handler(topic("unlimited"), name="unlimited", batch=50, max_retries=0)
def unlimited(order: Any, message: Message) -> None:
    """Its only limits are the worker's."""
    note("unlimited", message, order, "begun")
    time.sleep(order["seconds"])
    note("unlimited", message, order)
