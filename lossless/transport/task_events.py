"""The event dispatcher of workers and senders on this transport.

Task events cost nothing while nobody listens (see `lossless.transport.event_audience`), and little while somebody does:
the first after a quiet moment goes at once, and what follows it every tenth of a second together. What tells of the
worker itself (heartbeats, online, offline) always goes. A heartbeat asks too: Flower and `celery events` have every
worker send one when they begin. On other transports this is Celery's own dispatcher.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any

from celery.events import dispatcher as _dispatcher
from celery.events.event import group_from
from kombu.asynchronous import get_event_loop

from lossless.transport.celery_worker_state import known_requests, stopping
from lossless.transport.event_audience import EventAudience

dispatcher: Any = _dispatcher  # its stubs know nothing of what a subclass needs

#: Seconds for which task events are gathered, and the most that travel together.
GATHERED_FOR = 0.1
MOST_TOGETHER = 200

#: Seconds after which those that had a heartbeat sent are looked for again.
ASKS_AGAIN_AFTER = (0.05, 0.2, 0.5)

#: How many publications are kept while Redis is unavailable: listeners have lost their connections too.
KEPT_OFFLINE = 1_000

#: Where events of tasks go, and what tells their publications by it.
TASKS = "task"
TASK_PREFIX = f"{TASKS}-"
TOGETHER = "task.multi"


class EventDispatcher(dispatcher.EventDispatcher):  # type: ignore[misc]
    """Celery's event dispatcher, which sends task events in groups, and only while somebody listens."""

    def __init__(self, connection: Any = None, *args: Any, on_send_buffered: Any = None, **kwargs: Any) -> None:
        self._audience = EventAudience()
        #: How often a new listener has appeared, who has missed all events before.
        self.arrivals = 0
        self._flush_comes = False
        self._flush_at_once = on_send_buffered
        if on_send_buffered is not None and _counts_listeners(connection):
            kwargs["buffer_limit"], on_send_buffered = MOST_TOGETHER, self._flush_soon
        super().__init__(connection, *args, on_send_buffered=on_send_buffered, **kwargs)
        self._outbound_buffer: Any = deque(maxlen=KEPT_OFFLINE)

    def send(self, type: str, *args: Any, **fields: Any) -> Any:
        """Send an event; a task event only if somebody may listen."""
        if not self.enabled:
            return None
        if not type.startswith(TASK_PREFIX):
            if type == "worker-offline":
                self.flush()
            sent = super().send(type, *args, **fields)
            self._ask_if_needed()  # after it, so that whoever answers a heartbeat is noticed
            if type == "worker-heartbeat" and "active" not in fields:
                self._ask_again()  # somebody had it sent, and begins to listen
            return sent
        if (self.groups and TASKS not in self.groups) or not self._audience.wants(monotonic()):
            return None
        if self._audience.absent:
            self._ask()
            if not self._audience.wants(monotonic()) or self._is_queued(type, fields.get("uuid")):
                return None
        return super().send(type, *args, **fields)

    def publish(self, type: str, fields: dict[str, Any], producer: Any, **kwargs: Any) -> Any:
        """Publish an event by a producer (`task-sent`); a task event only if somebody may listen."""
        if group_from(type) == TASKS and not self._audience.wants(monotonic()):
            return None
        return super().publish(type, fields, producer, **kwargs)

    def _publish(self, event: Any, producer: Any, routing_key: str, **kwargs: Any) -> Any:
        super()._publish(event, producer, routing_key, **kwargs)
        if producer is not None and routing_key.startswith(f"{TASKS}."):
            came = self._audience.note(_read_listeners(producer), monotonic())
            self.arrivals += came
            if came and self.on_send_buffered is not None:
                self._catch_up()

    @property
    def listened_to(self) -> bool:
        """Return whether somebody received the last task event."""
        return bool(self.enabled) and not self._audience.absent

    def _ask(self) -> None:
        """Publish an empty group of events, to learn how many receive it."""
        with self.mutex:
            if not self._closed:
                self._publish([], self.producer, TOGETHER)

    def _ask_if_needed(self) -> None:
        """Ask if the answer makes a difference."""
        if self.enabled and self._audience.should_ask(monotonic(), bool(known_requests())):
            self._ask()

    def _ask_again(self) -> None:
        """Ask in a moment: Celery's receiver requests heartbeats before it listens."""
        loop: Any = get_event_loop()
        if loop is not None:
            for delay in ASKS_AGAIN_AFTER:
                loop.call_later(delay, self._ask_if_needed)

    # -- a new listener

    def _catch_up(self) -> None:
        """Add the events of tasks in flight, which a new listener has missed, to the next group."""
        for request in known_requests():
            if request.eventer is self and request.task.send_events:
                self._group_buffer[TASKS] += self._history(request)
        self._gather()

    def _is_queued(self, type: str, name: Any) -> bool:
        """Return whether the next group has an event already: catching up adds a task's start."""
        return any((event["type"], event.get("uuid")) == (type, name) for event in tuple(self._group_buffer[TASKS]))

    def _history(self, request: Any) -> list[dict[str, Any]]:
        """Return the events of a task until now (celery/worker/strategy.py, request.py)."""
        began = {} if request.time_start is None else {"timestamp": request.time_start}
        told = [
            self._prepare_event(
                "task-received",
                {
                    "uuid": request.id, "name": request.name, "args": request.argsrepr, "kwargs": request.kwargsrepr,
                    "root_id": request.root_id, "parent_id": request.parent_id,
                    "retries": request.request_dict.get("retries", 0),
                    "eta": request.eta and request.eta.isoformat(),
                    "expires": request.expires and request.expires.isoformat(), **began,
                },
            )
        ]  # fmt: skip
        if began:
            told.append(self._prepare_event("task-started", {"uuid": request.id, **began}))
        return told

    # -- groups of events

    def _flush_soon(self) -> None:
        """Flush in a moment, once for all events until then.

        After a quiet moment, or if the loop may end sooner, flush at once.
        """
        if stopping():
            self.flush()
        elif not self._flush_comes:
            self._flush_at_once()
            self._gather()

    def _gather(self) -> None:
        """Flush in a moment; also from a thread that is not the loop's, or that holds the mutex."""
        loop: Any = get_event_loop()
        if loop is None:
            self._flush_at_once()
        elif not self._flush_comes:
            self._flush_comes = True
            loop.on_close.add(self._flush_now)
            loop.call_soon(loop.call_later, GATHERED_FOR, self._flush_now)

    def _flush_now(self, closing: Any = None) -> None:
        self._flush_comes = False
        loop: Any = closing or get_event_loop()
        if loop is not None:
            loop.on_close.discard(self._flush_now)
        flows = bool(self._group_buffer[TASKS]) and not self._closed
        self.flush()
        if flows and closing is None:
            self._gather()


def _counts_listeners(connection: Any) -> bool:
    return bool(getattr(connection.transport, "tells_listeners", False))


def _read_listeners(producer: Any) -> int | None:
    """Return how many received a producer's last publication, None if it failed or its broker does not tell."""
    broadcasts = getattr(producer._channel, "broadcasts", None)
    return None if broadcasts is None else broadcasts.heard_by()
