"""The Celery app: our defaults, and over them the user's celeryconfig."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from celery import Celery

from bridge.settings import DEFAULT_GROUP
from lossless import transport

#: What the promises rest on or what Celery's defaults would break; each with its reason.
DEFAULTS: Final[dict[str, Any]] = {
    "broker_url": "redis://localhost:6379/0",
    # A delivery is acknowledged when it has ended, not when it is begun.
    "task_acks_late": True,
    # False loses or loops on Redis (celery/worker/request.py on_failure): failures are settled before.
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,
    # lossless.request counts lost processes itself: Celery's own ways loop for ever, or count them as failures.
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": False,
    # What arrives and no task can be run with is dead-lettered through this task.
    "worker_consumer": "lossless.consumer:Consumer",
    "burial_task": "tasks.bury",
    # What carries no record is not the bridge's: it stays in its queue, for whoever sent it there.
    "burial_wants": "tasks.burial:carries_record",
    # Seconds that running handlers have after SIGTERM; Kubernetes kills after 30.
    "worker_soft_shutdown_timeout": 20,
    # Results are Kafka's and the ledger's business; a result backend that is down would fail tasks
    # before on_failure (celery/app/trace.py handle_failure).
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    "result_backend": None,
    # Celery's own, named because others are refused: only JSON is read back, a record travels in protocol 2.
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_protocol": 2,
    # A retry outlasts a Redis that restarts: Celery's policy gives up after 0.6 s.
    "task_publish_retry": True,
    "task_publish_retry_policy": {
        "max_retries": 5,
        "interval_start": 0,
        "interval_step": 0.5,
        "interval_max": 3,
    },
    # After a lost connection brokers other than Redis give out again what still runs: two copies would run at once.
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    # For Flower. Events of each send would give a series per producer process (Flower's metrics).
    "worker_send_task_events": True,
    "task_send_sent_event": False,
    # Celery gives up after 100 tries otherwise, and exits on READONLY, OOM or LOADING.
    "broker_connection_retry": True,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    # A mistyped queue would get a list that nobody reads; handlers' own queues are declared for them.
    "task_create_missing_queues": False,
    "broker_transport_options": {
        # kombu's default is none: a frozen Redis would block a publish for ever.
        "socket_timeout": 15,
        "socket_connect_timeout": 5,
        # A firewall that forgets an idle connection would cut off remote control, and nobody would notice.
        "socket_keepalive": True,
        "health_check_interval": 25,
    },
}


def defaults(environ: Mapping[str, str]) -> dict[str, Any]:
    """Our defaults, and the one that the environment says.

    The default queue is the group's: two applications, or one beside a plain Celery application, may share a Redis.
    Of the queue `celery`, which any Celery application has, each would take what is the other's.
    """
    return {**DEFAULTS, "task_default_queue": environ.get("BRIDGE_GROUP") or DEFAULT_GROUP}


class App(Celery):
    """Pickled by reference: a child that is spawned makes the app and its handlers anew.

    Celery's own way (celery/app/utils.py _unpickle_app_v2) gives the child another app, which has no handler.
    """

    def __reduce__(self) -> tuple[Callable[[], Celery], tuple[()]]:
        return (_the_app, ())


def _the_app() -> Celery:
    return app


def make_app() -> Celery:
    """The app that `celery -A tasks` and the bridge use."""
    # Before any connection is made: kombu chooses a transport by the URL's scheme.
    transport.use()
    made = App("tasks")
    if module := _config_module():
        made.config_from_object(module)
    if handlers := os.environ.get("HANDLERS"):
        made.conf.imports = tuple(name.strip() for name in handlers.split(",") if name.strip())
    made.on_after_configure.connect(_put_defaults_under)
    return made


def _put_defaults_under(sender: Celery, source: Any, **_: Any) -> None:
    """What a user sets goes over ours, in `broker_transport_options` key by key.

    Celery's own `add_defaults` would put ours over the user's (celery/utils/collections.py add_defaults).
    """
    source.maps.insert(-1, defaults(os.environ))
    source.broker_transport_options = {
        **DEFAULTS["broker_transport_options"],
        **source.broker_transport_options,
    }


def _config_module() -> str | None:
    """The user's celeryconfig: named by CELERY_CONFIG_MODULE, or found on the import path."""
    if named := os.environ.get("CELERY_CONFIG_MODULE"):
        return named
    # Celery's own command does the same (celery/bin/celery.py --workdir); the script `bridge` must too.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return "celeryconfig" if importlib.util.find_spec("celeryconfig") else None


app = make_app()
