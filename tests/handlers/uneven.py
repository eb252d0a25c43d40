"""A handler that takes milliseconds, and one that takes seconds, on one queue."""

import os
import time
from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic


@handler(topic("quick"))
def quick(order: Any, message: Message) -> None:
    time.sleep(0.005)
    note("quick", message, {"took": time.time() - (message.timestamp or 0) / 1000})


#: `batch=` of the slow one, where a test gives one.
OPTIONS: dict[str, Any] = {"batch": int(os.environ["TEST_BATCH"])} if "TEST_BATCH" in os.environ else {}


@handler(topic("slow"), **OPTIONS)
def slow(order: Any, message: Message) -> None:
    time.sleep(float(order["seconds"]))
    note("slow", message, order)
