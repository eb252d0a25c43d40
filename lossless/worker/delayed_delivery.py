"""Messages that have waited in RabbitMQ (Celery's native delayed delivery): they arrive as if sent to their queue."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kombu import Queue
from kombu.transport.native_delayed_delivery import calculate_routing_key

from lossless.worker.message_burial import Successor

#: What kombu puts before the routing key: the seconds as binary digits (kombu/transport/native_delayed_delivery.py).
DELAY: Final = re.compile(r"^(?:[01]\.){28}")

#: Where a message begins to wait, as Celery publishes it (celery/app/base.py `send_task`).
ENTRY: Final = "celery_delayed_27"

#: The routing key of each queue of this worker to which RabbitMQ delivers what has waited, by the queue's name.
_delayed: Final[dict[str, str]] = {}


def note_delayed_queues(queues: Iterable[Queue]) -> None:
    """Note the queues that Celery binds for its delayed delivery: those of any exchange but a direct one."""
    _delayed.update({queue.name: queue.routing_key for queue in queues if queue.exchange.type != "direct"})


def add_delay(successor: Successor) -> Successor:
    """Return a message that waits for its due time in RabbitMQ, if its queue is known; else it waits in a worker."""
    if successor.eta is None or successor.exchange or successor.routing_key not in _delayed:
        return successor
    seconds = int(successor.eta - time.time())
    if seconds < 1:
        return successor
    key = calculate_routing_key(seconds, _delayed[successor.routing_key])
    return replace(successor, exchange=ENTRY, routing_key=key)


def undo_delay(message: Any, queues: Mapping[str, str]) -> None:
    """Name a message's queue in its delivery info, and drop the headers of its way through RabbitMQ's queues.

    A message that came by the exchange of its queue's own name, without a wait, names its queue too.
    What is sent in its place (a retry, the rest of a batch, what a worker gives back) goes where `delivery_info` says.

    Parameters:
        queues: by routing key.
    """
    sent = message.delivery_info
    key = str(sent.get("routing_key") or "")
    if not (delay := DELAY.match(key)):
        if key in queues and sent.get("exchange") == queues[key]:
            message.delivery_info = {**sent, "exchange": "", "routing_key": queues[key]}
        return
    key = key[delay.end() :]
    message.delivery_info = {**sent, "exchange": "", "routing_key": queues.get(key, key)}
    for name in [name for name in message.headers if name.startswith(("x-death", "x-first-death", "x-last-death"))]:
        del message.headers[name]
