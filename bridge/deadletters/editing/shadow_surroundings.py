"""The surroundings of a handler in a shadow replay: what it sends is counted and not sent, and databases are copies."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu.utils.uuid import uuid

from bridge.deadletters.editing.database_copies import DatabaseCopies
from bridge.deadletters.editing.handler_sandbox import Tell
from bridge.formats.delivery import Message


class ShadowSurroundings:
    """The surroundings that a shadow gives to handlers.

    Attributes:
        copies: of SQLite files.
    """

    def __init__(self) -> None:
        self.copies = DatabaseCopies()
        self._tasks = Counter[str]()

    def enter(self, tell: Tell) -> None:
        """Put the surroundings up in the process of a run."""
        self._capture_tasks()
        self.copies.enter(lambda need: tell({"needs": need}), lambda what: tell({"refused": what}))

    def collect(self, message: Message) -> Mapping[str, Any]:
        """Return how many messages and tasks a run would have sent, by topic and by name."""
        outgoing = message.outbox.messages if message.outbox is not None else ()
        return {"published": Counter(each.topic for each in outgoing), "tasks": self._tasks}

    def learn(self, need: Mapping[str, Any]) -> bool:
        """Make a copy of the file that a run needs; return whether another run has it."""
        return self.copies.learn(need["sqlite"])

    def _capture_tasks(self) -> None:
        """Have Celery count the tasks that the handler sends, instead of sending them."""

        def send_task(app: Celery, name: str, *args: Any, **options: Any) -> Any:
            self._tasks[name] += 1
            return app.AsyncResult(options.get("task_id") or uuid())

        Celery.send_task = send_task  # type: ignore[method-assign, assignment]
