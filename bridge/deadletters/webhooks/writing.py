"""What is to be sent is written, in the transaction in which it becomes true."""

import json

from bridge.deadletters.store import clock, deliveries, webhooks
from bridge.deadletters.store.database import Connection
from bridge.deadletters.webhooks.events import Event


def write(connection: Connection, event: Event, only: int | None = None) -> None:
    """Have the webhooks that are on and tell of such an event told of it.

    Parameters:
        only: the number of the one that is to be told, whatever it tells of.
    """
    meant = [
        each.id
        for each in webhooks.everyone(connection)
        if each.off_at is None and (each.id == only if only is not None else event.about in each.about)
    ]
    row = {**event._asdict(), "alarm": event.key, "data": json.dumps(event.data)}
    del row["key"]
    deliveries.add(connection, meant, row, clock.now(connection))
