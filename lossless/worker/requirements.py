"""What a worker's settings must be, so that what it cannot handle does not get lost (pure)."""

from typing import Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from lossless.worker.burial import burial_task
from lossless.worker.request import Request

#: The values of the setting `unknown_tasks`.
WAIT, DISCARD = "wait", "discard"


def fault_in(app: Celery) -> str | None:
    """Why burials would get lost with an app's settings, or None."""
    name = burial_task(app)
    if name not in app.tasks:
        return (
            f"the task {name!r} (setting burial_task) is not registered: "
            "what cannot be handled would have nowhere to go"
        )
    task: Any = app.tasks[name]
    if not task.acks_late or not issubclass(symbol_by_name(task.Request), Request):
        return (
            f"the task {name!r} (setting burial_task) needs acks_late and the Request of lossless.worker.request: "
            "a burial whose process dies would be lost"
        )
    if not {"json", "application/json"} & set(app.conf.accept_content):
        return "accept_content must include json, which burials are written in"
    if (chosen := app.conf.get("unknown_tasks", WAIT)) not in (WAIT, DISCARD):
        return f"unknown_tasks is {chosen!r}: it must be {WAIT!r} or {DISCARD!r}"
    return None


def discards_unknown(app: Celery) -> bool:
    """Whether tasks that are not registered are discarded as failures, if the burial task does not want them."""
    return bool(app.conf.get("unknown_tasks", WAIT) == DISCARD)
