"""Somebody who listens to events, by Celery's own receiver."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from celery import Celery

from tests.lossless.harness import Broker, wait_until

#: What is told of a task that succeeds.
ALL = ["task-received", "task-started", "task-succeeded"]


class Listener:
    """Celery's own receiver, with what it has seen."""

    def __init__(self, app: Celery, connection: Any, wakeup: bool = True) -> None:
        self.state = app.events.State()
        self.seen: list[dict[str, Any]] = []
        self._receiver = app.events.Receiver(connection, handlers={"*": self._note})
        self._thread = threading.Thread(target=self._receiver.capture, kwargs={"wakeup": wakeup})

    def _note(self, event: dict[str, Any]) -> None:
        self.seen.append(event)
        self.state.event(dict(event))

    def types(self, task: str) -> list[str]:
        return [event["type"] for event in self.seen if event.get("uuid") == task]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._receiver.should_stop = True
        self._thread.join(10)


def listeners(broker: Broker, name: str | None = None) -> int:
    """How many connections, of that name where one is given, listen to patterns, as receivers of events and control."""
    found = broker.client.client_list(_type="pubsub")
    return sum(int(one["psub"]) > 0 and name in (None, one["name"]) for one in found)


@contextmanager
def listening(
    broker: Broker, url: str | None = None, wakeup: bool = True, options: dict[str, Any] | None = None
) -> Iterator[Listener]:
    """A receiver that listens, as Flower's does; closed when the block ends.

    Parameters: where its connection is seen; the broker's URL, where it is another; whether it asks workers for a
    heartbeat at its start; `broker_transport_options`.
    """
    # Its connections have a name: one of a worker's control may begin to listen at the same moment.
    name = f"listener-{uuid4().hex}"
    told = {**(options or {}), "client_name": name}
    app = Celery("listener", broker=url or broker.url, broker_transport_options=told)
    with app, app.connection_for_read() as connection:
        listener = Listener(app, connection, wakeup)
        listener.start()
        try:
            wait_until(lambda: listeners(broker, name) > 0, what="it listens")
            yield listener
        finally:
            listener.stop()
