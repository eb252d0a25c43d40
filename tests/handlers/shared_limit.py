"""Handlers of a bank that takes so many calls in a second, and so many at once."""

import os
import time
from typing import Any

from tasks import Limit, Message, handler
from tests.handlers.notes import note, topic

RATE: Any = os.environ.get("TEST_RATE")
AT_ONCE: Any = os.environ.get("TEST_AT_ONCE")
bank = Limit(
    "bank",
    per_second=float(RATE) if RATE else None,
    burst=20 if RATE else None,
    concurrency=int(AT_ONCE) if AT_ONCE else None,
    by=lambda message: message.key,
)


@handler(topic("orders"), name="charge", limit=bank, max_retries=2, retry_backoff=1, retry_backoff_max=1)
def charge(order: Any, message: Message) -> None:
    """Takes as long as it is said."""
    said = order if isinstance(order, dict) else {}
    note("charge", message, order, "begun")
    time.sleep(said.get("takes", 0.005))
    note("charge", message, order)
