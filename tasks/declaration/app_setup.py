"""The Celery app of the handlers; `tasks.use` prepares an app of the user's own, and leaves its other tasks alone."""

import os
from typing import Any

from celery import Celery

from bridge.settings import read_credentials
from lossless import transport
from lossless.worker.publisher_confirms import ConfirmingAMQP
from tasks.celery import app as _own
from tasks.declaration.celery_defaults import DEFAULTS, apply_defaults, read_group
from tasks.declaration.handler_declaration import declare_queue
from tasks.declaration.handler_task import HandlerTask
from tasks.execution import dead_letter_writer

_used: list[Celery] = [_own]
dead_letter_writer.register_burial(_own)


def handler_app() -> Celery:
    """Return the app of the handlers: the last that was given to `use`, or that of `celery -A tasks`."""
    return _used[-1]


def use(app: Celery) -> None:
    """Have a Celery app of your own run handlers: `celery -A mysite worker`, `bridge -A mysite`.

    Call it where the app is made, before any module of handlers is imported; those declared from then on are tasks of
    this app. They go to the queue that has the group's name (BRIDGE_GROUP) unless `task_routes` or a handler's own
    `queue` says otherwise, and a worker that is started without `-Q` consumes it beside the app's own.
    """
    transport.use(read_credentials(os.environ))
    if app.amqp_cls == Celery.amqp_cls:
        app.amqp_cls = ConfirmingAMQP  # type: ignore[assignment]
        if "amqp" in vars(app):
            app.amqp.__class__ = ConfirmingAMQP
    if app.configured:  # type: ignore[attr-defined]
        _configure(app, app.conf)
    else:
        app.on_after_configure.connect(_configure, sender=app, weak=False)
    dead_letter_writer.register_burial(app)
    _used.append(app)
    # Importing this package made the app of `celery -A tasks`, which `shared_task` and `current_app` must not mean.
    app.set_default()
    app.set_current()


def _configure(sender: Celery, source: Any, **_: Any) -> None:
    apply_defaults(source, DEFAULTS)
    routes = source.get("task_routes") or ()
    source.task_routes = [*(routes if isinstance(routes, list | tuple) else [routes]), route_to_group_queue]
    declare_queue(sender, read_group(os.environ))


def route_to_group_queue(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    """Return the route of handlers and the burial task, the group's queue; Celery asks this router last."""
    ours = name == dead_letter_writer.BURIAL_TASK or isinstance(task, HandlerTask)
    return {"queue": read_group(os.environ)} if ours else None
