"""A worker says in Redis that it lives, which queues it consumes and which handlers it knows.

From a thread of the main process: nothing that the worker does waits for it, or rests on it.
"""

import logging
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

from celery import Celery

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.clock_skew import ClockSkew
from bridge.ledger.members import ANNOUNCE_EVERY, Members, unique_member
from bridge.records.header import Contents
from bridge.settings.versions import versions
from lossless.transport.working import known_requests
from tasks.process_activity import ProcessActivity

logger = logging.getLogger(__name__)


class Announcing:
    """Announces a worker until it is told to end.

    Parameters:
        consumer: Celery's, of which is read what it consumes and with how many processes.
    """

    def __init__(self, app: Celery, consumer: Any, ledger: Ledger) -> None:
        self._app, self._consumer, self._group = app, consumer, ledger.group
        self._members = Members(ledger, "workers")
        self._member = unique_member()
        self._started = time.time()
        self._ended = threading.Event()
        self._activity, self._skew = ProcessActivity(), ClockSkew(ledger)

    def begin(self) -> None:
        """Announce, now and every two seconds."""
        threading.Thread(target=self._run, name="announcing", daemon=True).start()

    def end(self) -> None:
        """Take back what was announced: nothing more is consumed. Waits for nothing, so that a signal may call it."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(ANNOUNCE_EVERY if self._announce() else 1.0):
            pass
        try:
            self._members.leave(self._member)
        except LedgerUnavailable as error:
            logger.debug("%s", error)

    def _announce(self) -> bool:
        try:
            state = self._state()
            seen = [f"queue {queue}" for queue in state["queues"]] + [f"handler {name}" for name in state["handlers"]]
            self._members.announce(self._member, state, seen)
        except LedgerUnavailable as error:
            logger.debug("%s", error)
            return False
        except Exception as error:
            # What is read belongs to Celery's main thread, and may change while it is read.
            logger.debug("not announced: %r", error)
            return False
        return True

    def _state(self) -> dict[str, Any]:
        pool = self._consumer.pool
        tasks: dict[str, Any] = dict(self._app.tasks)
        handlers = {name: task for name, task in tasks.items() if getattr(task, "source_topics", ())}
        return {
            "name": str(self._consumer.hostname),
            "group": self._group,
            "versions": versions(),
            "started": self._started,
            "queues": sorted(map(str, self._app.amqp.queues.consume_from)),
            "handlers": sorted(handlers),
            "handler_versions": {name: handlers[name].version for name in sorted(handlers)},
            "holds": holds(known_requests()),
            "running": self._activity.look(known_requests()),
            "host": socket.gethostname(),
            **self._skew.look(),
            "processes": int(getattr(pool, "num_processes", None) or getattr(pool, "limit", None) or 1),
        }


def holds(requests: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Deliveries that a worker has and that have not ended, by queue and handler."""
    found: dict[str, dict[str, int]] = {}
    for request in requests:
        message = request.message
        contents = Contents.of(message.headers or {})
        if contents is not None:
            queue = found.setdefault(str((message.delivery_info or {}).get("routing_key")), {})
            queue[request.name] = queue.get(request.name, 0) + len(contents.offsets)
    return found
