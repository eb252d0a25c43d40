"""Messages that have waited in RabbitMQ (Celery's native delayed delivery): they arrive as if sent to their queue."""

import re
from collections.abc import Mapping
from typing import Any, Final

#: What kombu puts before the routing key: the seconds as binary digits (kombu/transport/native_delayed_delivery.py).
DELAY: Final = re.compile(r"^(?:[01]\.){28}")


def undo_delay(message: Any, queues: Mapping[str, str]) -> None:
    """Name a message's queue in its delivery info, and drop the headers of its way through RabbitMQ's queues.

    What is sent in its place (a retry, the rest of a batch, what a worker gives back) goes where `delivery_info` says.

    Parameters:
        queues: by routing key.
    """
    sent = message.delivery_info
    key = str(sent.get("routing_key") or "")
    if not (delay := DELAY.match(key)):
        return
    key = key[delay.end() :]
    message.delivery_info = {**sent, "exchange": "", "routing_key": queues.get(key, key)}
    for name in [name for name in message.headers if name.startswith(("x-death", "x-first-death", "x-last-death"))]:
        del message.headers[name]
