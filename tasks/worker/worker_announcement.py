"""The announcement of a worker in Redis: that it lives, its queues and handlers, and the deliveries that its processes
have run longest.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from celery import Celery

from bridge.errors import LedgerUnavailable
from bridge.formats.celery_header import HeaderContents
from bridge.ledger import Ledger
from bridge.ledger.clock_skew import ClockSkew
from bridge.ledger.group_members import ANNOUNCE_EVERY, GroupMembers, make_member_name
from bridge.settings.installed_versions import read_versions
from lossless.background_thread import BackgroundThread
from lossless.transport.celery_worker_state import known_requests
from tasks.execution import batch_progress

logger = logging.getLogger(__name__)


class WorkerAnnouncement:
    """The announcement of one worker, repeated until it ends.

    Parameters:
        consumer: Celery's, of which is read what it consumes and with how many processes.
    """

    def __init__(self, app: Celery, consumer: Any, ledger: Ledger) -> None:
        self._app, self._consumer, self._group = app, consumer, ledger.group
        self._members = GroupMembers(ledger, "workers")
        self._member = make_member_name()
        self._started = time.time()
        self._thread = BackgroundThread("announcing", self._run)
        self._activity, self._skew = ProcessActivity(), ClockSkew(ledger)

    def begin(self) -> None:
        """Announce, now and every two seconds."""
        self._thread.start()

    def end(self) -> None:
        """Take back what was announced: nothing more is consumed. Waits for nothing, so that a signal may call it."""
        self._thread.stopping.set()

    def _run(self) -> None:
        while not self._thread.stopping.wait(ANNOUNCE_EVERY if self._announce() else 1.0):
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
            "versions": read_versions(),
            "started": self._started,
            "queues": sorted(map(str, self._app.amqp.queues.consume_from)),
            "handlers": sorted(handlers),
            "handler_versions": {name: handlers[name].version for name in sorted(handlers)},
            "holds": count_held_deliveries(known_requests()),
            "running": self._activity.list_running(known_requests()),
            "host": socket.gethostname(),
            **self._skew.measure(),
            "processes": int(getattr(pool, "num_processes", None) or getattr(pool, "limit", None) or 1),
        }


def count_held_deliveries(requests: Iterable[Any]) -> dict[str, dict[str, int]]:
    """Return the number of unended deliveries that a worker holds, by queue and handler."""
    found: dict[str, dict[str, int]] = {}
    for request in requests:
        message = request.message
        contents = HeaderContents.from_headers(message.headers or {})
        if contents is not None:
            queue = found.setdefault(str((message.delivery_info or {}).get("routing_key")), {})
            queue[request.name] = queue.get(request.name, 0) + len(contents.offsets)
    return found


#: Deliveries that a worker announces: those that have run longest.
SHOWN_RUNS: Final = 5
#: Seconds from which on a run is announced.
LONG_RUN: Final = 5.0


class ProcessActivity:
    """The running deliveries of this worker's processes.

    A message may carry a batch, whose processes note which of its deliveries runs: that one began when it was first
    seen to run, or a moment before.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen: dict[tuple[int, str], tuple[object, float]] = {}

    def list_running(self, requests: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the deliveries that have run longest: handler, record, process and seconds.

        Parameters:
            requests: Celery's, of what the worker has.
        """
        now = self._clock()
        known, self._seen = self._seen, {}
        found = []
        for request in requests:
            pid, began = request.worker_pid, request.time_start
            contents = HeaderContents.from_headers(request.message.headers or {})
            if not pid or not began or contents is None or not contents.offsets:
                continue
            offset = contents.offsets[0]
            if len(contents.offsets) > 1:
                notes = batch_progress.read_notes(int(pid), str(request.id))
                place = (int(pid), str(request.id))
                state = (len(notes.done), notes.running)
                before = known.get(place)
                began = before[1] if before is not None and before[0] == state else (began if before is None else now)
                self._seen[place] = (state, began)
                offset = offset if notes.running is None else notes.running
            record = f"{contents.topic}-{contents.partition}-{offset}"
            seconds = max(0.0, now - began)
            if seconds >= LONG_RUN:
                found.append({"handler": request.name, "record": record, "pid": int(pid), "seconds": round(seconds, 1)})
        return sorted(found, key=lambda each: -each["seconds"])[:SHOWN_RUNS]
