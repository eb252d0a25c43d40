"""`celery inspect scheduled` and `query_task`, and Flower with them: what waits for its time is looked up in Redis.

It belongs to its queue and to no worker: each worker that consumes the queue lists it.
"""

from collections.abc import Iterator
from typing import Any

from celery.utils.functional import maybe_list
from celery.worker import control as _control
from celery.worker import request

control: Any = _control  # its stubs leave out what is not public

#: The most that are listed of each queue, those that are due first.
MOST = 100
#: Celery's own command, which knows what this worker has taken.
_query_known: Any = control.query_task
#: What Celery's timer gives to tasks (celery/worker/strategy.py).
PRIORITY = 6


def register() -> None:
    """Have this process's worker answer `inspect scheduled` and `query_task` by these, in place of Celery's."""
    control.inspect_command(alias="dump_schedule")(scheduled)
    control.inspect_command(variadic="ids", signature="[id1 [id2 [... [idN]]]]")(query_task)


def scheduled(state: Any, **arguments: Any) -> list[dict[str, Any]]:
    """List of currently scheduled ETA/countdown tasks."""
    return [*control._iter_schedule_requests(state.consumer.timer), *_waiting(state)]


def query_task(state: Any, ids: Any, **arguments: Any) -> dict[str, Any]:
    """Query for task information by id."""
    wanted = maybe_list(ids)
    known: dict[str, Any] = _query_known(state, wanted)
    if missing := set(wanted) - known.keys():
        requests = (entry["request"] for entry in _waiting(state))
        known |= {request["id"]: ("scheduled", request) for request in requests if request["id"] in missing}
    return known


def _waiting(state: Any) -> Iterator[dict[str, Any]]:
    channel = state.consumer.task_consumer.channel
    if not hasattr(channel, "waiting"):
        return  # kombu's own transport: the timer has all
    for queue in sorted(channel.active_queues):
        for payload in channel.waiting(queue, MOST):
            yield _entry(state, channel.Message(payload, channel=channel))


def _entry(state: Any, message: Any) -> dict[str, Any]:
    headers = message.headers
    try:
        info: Any = request.Request(message, app=state.app, hostname=state.hostname, headers=headers).info()
    except Exception as error:  # whatever cannot run is not in the way of the others
        info = {"id": headers.get("id"), "name": headers.get("task"), "args": f"({error!r})", "kwargs": {}}
    return {"eta": headers.get("eta"), "priority": PRIORITY, "request": info}
