"""`celery inspect scheduled` and `query_task`, for Flower too: delayed messages are looked up in Redis.

It belongs to its queue and to no worker: each worker that consumes the queue lists it, and tells those who listen to
events of it, as Celery's does, which receives such a task when it is sent.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from celery.utils.functional import maybe_list
from celery.worker import control as _control
from celery.worker import request

control: Any = _control  # its stubs leave out what is not public

logger = logging.getLogger(__name__)

#: Seconds between reports of delayed tasks to those who listen to events.
TOLD_EVERY = 2.0
#: The most that are listed of each queue, those that are due first.
MOST = 100
#: Celery's own command, which knows what this worker has taken.
_query_known: Any = control.query_task
#: What Celery's timer gives to tasks (celery/worker/strategy.py).
PRIORITY = 6


def register_commands() -> None:
    """Have this process's worker answer `inspect scheduled` and `query_task` by these, in place of Celery's."""
    control.inspect_command(alias="dump_schedule")(scheduled)
    control.inspect_command(variadic="ids", signature="[id1 [id2 [... [idN]]]]")(query_task)


def scheduled(state: Any, **arguments: Any) -> list[dict[str, Any]]:
    """List of currently scheduled ETA/countdown tasks."""
    return [*control._iter_schedule_requests(state.consumer.timer), *_list_waiting(state)]


def query_task(state: Any, ids: Any, **arguments: Any) -> dict[str, Any]:
    """Query for task information by id."""
    wanted = maybe_list(ids)
    known: dict[str, Any] = _query_known(state, wanted)
    if missing := set(wanted) - known.keys():
        requests = (entry["request"] for entry in _list_waiting(state))
        known |= {request["id"]: ("scheduled", request) for request in requests if request["id"] in missing}
    return known


class WaitingTasks:
    """The delayed tasks, reported to those who listen to task events.

    Parameters:
        consumer: the worker's consumer.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._told = frozenset[str]()
        self._told_to = 0

    def tell(self) -> None:
        """Send `task-received` for delayed tasks that were not reported yet; look nothing up while nobody listens."""
        dispatcher = self._consumer.event_dispatcher
        if not getattr(dispatcher, "listened_to", False):
            return
        if self._told_to != dispatcher.arrivals:
            self._told, self._told_to = frozenset(), dispatcher.arrivals
        try:
            waiting = {message.headers.get("id"): message for message in _messages(self._consumer)}
        except Exception as error:  # Redis is away, or refuses: it is looked up again
            logger.debug("What waits could not be looked up for those who listen to events: %r", error)
            return
        for message in (waiting[name] for name in waiting.keys() - self._told):
            self._tell_of(message, dispatcher)
        self._told = frozenset(waiting)

    def _tell_of(self, message: Any, dispatcher: Any) -> None:
        app = self._consumer.app
        if not getattr(app.tasks.get(message.headers.get("task")), "send_events", False):
            return
        with suppress(Exception):  # what cannot run is told of when it is due
            held: Any = request.Request(
                message, app=app, hostname=self._consumer.hostname, headers=message.headers, eventer=dispatcher
            )
            dispatcher.send("task-received", **received(held))


def _list_waiting(state: Any) -> Iterator[dict[str, Any]]:
    for message in _messages(state.consumer):
        yield _make_entry(state, message)


def _messages(consumer: Any) -> Iterator[Any]:
    channel = consumer.task_consumer.channel
    if not hasattr(channel, "waiting"):
        return  # kombu's own transport: the timer has all
    for queue in sorted(channel.active_queues):
        for payload in channel.waiting(queue, MOST):
            yield channel.Message(payload, channel=channel)


def received(held: Any) -> dict[str, Any]:
    """Return the fields of `task-received` for a request (celery/worker/strategy.py)."""
    return {
        "uuid": held.id, "name": held.name, "args": held.argsrepr, "kwargs": held.kwargsrepr,
        "root_id": held.root_id, "parent_id": held.parent_id, "retries": held.request_dict.get("retries", 0),
        "eta": held.eta and held.eta.isoformat(), "expires": held.expires and held.expires.isoformat(),
    }  # fmt: skip


def _make_entry(state: Any, message: Any) -> dict[str, Any]:
    headers = message.headers
    try:
        info: Any = request.Request(message, app=state.app, hostname=state.hostname, headers=headers).info()
    except Exception as error:  # whatever cannot run is not in the way of the others
        info = {"id": headers.get("id"), "name": headers.get("task"), "args": f"({error!r})", "kwargs": {}}
    return {"eta": headers.get("eta"), "priority": PRIORITY, "request": info}
