"""The surroundings of a handler in a shadow replay: what it sends is counted and not sent, and databases are copies or
held.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from celery import Celery
from kombu.utils.uuid import uuid

from bridge.deadletters.editing.database_copies import DatabaseCopies
from bridge.deadletters.editing.handler_sandbox import Tell
from bridge.deadletters.editing.held_connections import HeldConnections
from bridge.deadletters.editing.socket_broker import SocketBroker
from bridge.formats.delivery import Message


class ShadowSurroundings:
    """The surroundings that a shadow gives to handlers.

    Parameters:
        hosts: services that they may reach, `pay:443`.
        databases: of PostgreSQL, `db:5432`: what handlers write there is rolled back.

    Attributes:
        copies: of SQLite files.
        held: connections to those databases.
        broker: of connections to those services.
    """

    def __init__(self, hosts: Collection[str] = (), databases: Collection[str] = ()) -> None:
        self.copies = DatabaseCopies()
        self.held = HeldConnections(frozenset(databases))
        self.broker = SocketBroker(frozenset(hosts))
        self._tasks = Counter[str]()

    def begin(self) -> Collection[int]:
        """Prepare a run, in the parent; return the files that its process keeps."""
        return self.broker.begin()

    def finish(self) -> None:
        """End a run, in the parent."""
        self.broker.finish()

    def enter(self, tell: Tell) -> None:
        """Put the surroundings up in the process of a run."""
        self._capture_tasks()
        self.copies.enter(lambda need: tell({"needs": need}), lambda what: tell({"refused": what}))
        self.held.enter(lambda need: tell({"needs": need}), lambda what, at: tell({"refused": what, "address": at}))
        self.broker.enter()

    def collect(self, message: Message, tell: Tell) -> Mapping[str, Any]:
        """Return how many messages and tasks a run would have sent, by topic and by name, and the number of its
        connections.
        """
        outgoing = message.outbox.messages if message.outbox is not None else ()
        connections = self.held.collect(lambda what, at: tell({"refused": what, "address": at}))
        published = Counter(each.topic for each in outgoing)
        return {"published": published, "tasks": self._tasks, "connections": connections}

    def learn(self, need: Mapping[str, Any]) -> bool:
        """Get ready what a run needs; return whether another run has it."""
        if "sqlite" in need:
            return self.copies.learn(need["sqlite"])
        return self.held.learn(need["conninfo"], need["address"])

    def _capture_tasks(self) -> None:
        """Have Celery count the tasks that the handler sends, instead of sending them."""

        def send_task(app: Celery, name: str, *args: Any, **options: Any) -> Any:
            self._tasks[name] += 1
            return app.AsyncResult(options.get("task_id") or uuid())

        Celery.send_task = send_task  # type: ignore[method-assign, assignment]
