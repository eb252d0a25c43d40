"""Handlers that end with their process, their worker or their time."""

import os
import signal
import time
from typing import Any

from tasks import Message, handler
from tests.handlers.notes import note, topic


@handler(topic("orders"), retry_delays=(0.2,))
def deadly(order: Any, message: Message) -> None:
    """Does what `order["end"]` says; `order["seconds"]` is how long it takes."""
    note("deadly", message, order, "begun")
    time.sleep(float(order.get("seconds", 0)))
    match order.get("end"):
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(7)
    note("deadly", message, order)


@handler(topic("limited"), time_limit=1)
def limited(order: Any, message: Message) -> None:
    note("limited", message, order, "begun")
    time.sleep(30)
