"""The Celery settings that differ from Celery's own defaults, for a whole app and for a task that carries deliveries,
each with the reason.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic

from celery import Task
from kombu import Exchange, Queue
from typing_extensions import ParamSpec, TypeVar

from bridge.settings import DEFAULT_GROUP

#: The defaults of a whole app; the user's settings override them.
DEFAULTS: Final[dict[str, Any]] = {
    "broker_url": "redis://localhost:6379/0",
    # Messages that no task can run with are dead-lettered through this task.
    "worker_consumer": "lossless.worker.consumer:Consumer",
    "burial_task": "tasks.bury",
    # A message without a record is not the bridge's: it stays in its queue, for its own application.
    "burial_wants": "tasks.execution.dead_letter_writer:carries_record",
    # Seconds that running handlers have after SIGTERM; Kubernetes kills after 30.
    "worker_soft_shutdown_timeout": 20,
    # Celery's own, named because another is refused.
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
    "broker_transport_options": {
        # kombu's default is none: a frozen Redis would block a publish for ever.
        "socket_timeout": 15,
        "socket_connect_timeout": 5,
        # A firewall that forgets an idle connection would cut off remote control, and nobody would notice.
        "socket_keepalive": True,
        "health_check_interval": 25,
    },
}


#: What a quorum queue of RabbitMQ is declared with. RabbitMQ 4 drops a message at its 21st delivery, also one that was
#: only beside those that ended the workers; 3.x takes no -1 for "without a limit". It cancels a consumer that has not
#: acknowledged a message for half an hour: Celery takes that for a lost connection and ends the run, which begins anew.
QUORUM: Final[dict[str, Any]] = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2**31 - 1,
    "x-consumer-timeout": 2**31 - 1,
}


def make_quorum_queue(name: str) -> Queue:
    """Return a quorum queue in which retries wait in RabbitMQ, as Celery has it, which needs a topic exchange.

    The number of messages that a worker may hold from a quorum queue is fixed: retries that wait in the worker would
    hold up all others. The routing key has no dots: RabbitMQ delivers what has waited to each queue whose key is the
    last words of its key, so that what waits for `eu.shop` would reach `shop` too.
    """
    key = name.replace("%", "%25").replace(".", "%2E")
    return Queue(name, Exchange(name, "topic"), key, queue_arguments=QUORUM)


P = ParamSpec("P", default=...)
R_co = TypeVar("R_co", covariant=True, default=Any)


class DeliveryTask(Task[P, R_co], Generic[P, R_co]):
    """A task that carries deliveries, independent of its app's settings for other tasks."""

    abstract = True
    Request = "lossless.worker.request:Request"
    # A delivery is acknowledged when it has ended, not when it is begun.
    acks_late = True
    # False loses or loops on Redis (celery/worker/request.py on_failure): failures are settled before.
    acks_on_failure = acks_on_timeout = True
    # lossless.worker.request counts lost processes itself: Celery's own ways loop for ever, or count them as failures.
    reject_on_worker_lost = retry_on_worker_lost = False
    # Results are Kafka's and the ledger's business; a result backend that is down would fail a task before its
    # on_failure (celery/app/trace.py handle_failure).
    ignore_result = True
    store_errors_even_if_ignored = False
    # Only JSON is read back.
    serializer = "json"


#: The defaults of the app of `celery -A tasks`, which has only tasks like handlers.
OWN_DEFAULTS: Final[dict[str, Any]] = {
    **DEFAULTS,
    "task_acks_late": DeliveryTask.acks_late,
    "task_acks_on_failure": DeliveryTask.acks_on_failure,
    "task_acks_on_timeout": DeliveryTask.acks_on_timeout,
    "task_reject_on_worker_lost": DeliveryTask.reject_on_worker_lost,
    "task_retry_on_worker_lost": DeliveryTask.retry_on_worker_lost,
    "task_ignore_result": DeliveryTask.ignore_result,
    "task_store_errors_even_if_ignored": DeliveryTask.store_errors_even_if_ignored,
    "task_serializer": DeliveryTask.serializer,
    "result_backend": None,
    "accept_content": ["json"],
    # A mistyped queue would get a list that nobody reads; handlers' own queues are declared for them.
    "task_create_missing_queues": False,
}


def read_group(environ: Mapping[str, str]) -> str:
    """Return the consumer group, which is also the name of the handlers' queue.

    Applications may share a Redis. From the queue `celery`, the default of any Celery application, they would take each
    other's messages.
    """
    return environ.get("BRIDGE_GROUP") or DEFAULT_GROUP


def apply_defaults(source: Any, defaults: Mapping[str, Any]) -> None:
    """Apply defaults beneath an app's configuration; in `broker_transport_options` key by key.

    Celery's own `add_defaults` would put ours over the user's (celery/utils/collections.py add_defaults).

    Parameters:
        source: the configuration, as the signal `on_after_configure` gives it.
    """
    source.maps.insert(-1, dict(defaults))
    source.broker_transport_options = {
        **defaults["broker_transport_options"],
        **(source.broker_transport_options or {}),
    }
