"""`celery inspect scheduled`, and Flower with it: what waits for its time lies in Redis, and is looked up there.

It belongs to its queue and to no worker: each worker that consumes the queue lists it.
"""

from collections.abc import Iterator
from typing import Any

from celery.worker import control as _control
from celery.worker import request

control: Any = _control  # its stubs leave out what is not public

#: The most that are listed of each queue, those that are due first.
MOST = 100
#: What Celery's timer gives to tasks (celery/worker/strategy.py).
PRIORITY = 6


def register() -> None:
    """Have this process's worker answer `inspect scheduled` with `scheduled`, in place of Celery's command."""
    control.inspect_command(alias="dump_schedule")(scheduled)


def scheduled(state: Any, **arguments: Any) -> list[dict[str, Any]]:
    """List of currently scheduled ETA/countdown tasks."""
    return [*control._iter_schedule_requests(state.consumer.timer), *_waiting(state)]


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
