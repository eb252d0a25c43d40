"""A Celery app of one's own: what must be so on it for handlers, and nothing besides.

What is a matter of a task is set on the handlers themselves (tasks.defaults); here is what only a whole app can have.
The user's own settings go over it, and plain tasks of the app keep their options, queues and results.
"""

import os
from typing import Any

from celery import Celery

from lossless import transport
from lossless.worker.confirms import ConfirmingAMQP
from tasks import burial
from tasks.celery import app as _own
from tasks.declaring import declare_queue
from tasks.defaults import DEFAULTS, group, put_under
from tasks.handler import HandlerTask

_used: list[Celery] = [_own]
burial.register(_own)


def current() -> Celery:
    """The app that handlers are declared on: the last that was given to `use`, or that of `celery -A tasks`."""
    return _used[-1]


def use(app: Celery) -> None:
    """Have a Celery app of your own run handlers: `celery -A mysite worker`, `bridge -A mysite`.

    Call it where the app is made, before any module of handlers is imported; those declared from then on are tasks of
    this app. They go to the queue that has the group's name (BRIDGE_GROUP) unless `task_routes` or a handler's own
    `queue` says otherwise, and a worker that is started without `-Q` consumes it beside the app's own.
    """
    transport.use()
    if app.amqp_cls == Celery.amqp_cls:
        app.amqp_cls = ConfirmingAMQP  # type: ignore[assignment]
        if "amqp" in vars(app):
            app.amqp.__class__ = ConfirmingAMQP
    if app.configured:  # type: ignore[attr-defined]
        _configure(app, app.conf)
    else:
        app.on_after_configure.connect(_configure, sender=app, weak=False)
    burial.register(app)
    _used.append(app)
    # Importing this package made the app of `celery -A tasks`, which `shared_task` and `current_app` must not mean.
    app.set_default()
    app.set_current()


def _configure(sender: Celery, source: Any, **_: Any) -> None:
    put_under(source, DEFAULTS)
    routes = source.get("task_routes") or ()
    source.task_routes = [*(routes if isinstance(routes, list | tuple) else [routes]), to_the_groups_queue]
    declare_queue(sender, group(os.environ))


def to_the_groups_queue(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
    """A router of Celery's, the last that is asked: handlers, and the task that buries, go to the group's queue."""
    ours = name == burial.NAME or isinstance(task, HandlerTask)
    return {"queue": group(os.environ)} if ours else None
