"""The Celery app: this project's defaults, overridden by the user's celeryconfig."""

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery

from bridge.settings import OWN_APP, read_credentials
from lossless import transport
from lossless.worker.publisher_confirms import ConfirmingAMQP
from tasks.declaration.celery_defaults import OWN_DEFAULTS, apply_defaults, make_quorum_queue, read_group


class App(Celery):
    """A Celery app that is pickled by reference: a spawned child makes the app and its handlers anew.

    Celery's own pickling (celery/app/utils.py _unpickle_app_v2) gives the child another app without handlers.
    """

    def __reduce__(self) -> tuple[Callable[[], Celery], tuple[()]]:
        return (_the_app, ())


def _the_app() -> Celery:
    return app


def make_app() -> Celery:
    """Make the app that `celery -A tasks` and the bridge use."""
    # Before any connection is made: kombu chooses a transport by the URL's scheme.
    transport.use(read_credentials(os.environ))
    made = App(OWN_APP, amqp=ConfirmingAMQP)
    if module := _config_module():
        made.config_from_object(module)
    if handlers := os.environ.get("HANDLERS"):
        made.conf.imports = tuple(name.strip() for name in handlers.split(",") if name.strip())
    made.on_after_configure.connect(_configure)
    return made


def _configure(sender: Celery, source: Any, **_: Any) -> None:
    apply_defaults(source, {**OWN_DEFAULTS, "task_default_queue": read_group(os.environ)})
    if source.task_default_queue_type == "quorum" and not source.task_queues:
        source.task_queues = [make_quorum_queue(source.task_default_queue)]


def _config_module() -> str | None:
    """Return the module of the user's celeryconfig: named by CELERY_CONFIG_MODULE, or found on the import path."""
    if named := os.environ.get("CELERY_CONFIG_MODULE"):
        return named
    # Celery's own command does the same (celery/bin/celery.py --workdir); the script `bridge` must too.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return "celeryconfig" if importlib.util.find_spec("celeryconfig") else None


app = make_app()
