"""Celery's message for a batch: what all of a handler's have in common is made once, by Celery itself."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery import Celery, signals
from kombu import Queue
from kombu.serialization import dumps

from bridge.records.gates import gates_for
from bridge.records.header import HEADER
from lossless.transport.gates import GATES


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch on its way to the Celery broker.

    Attributes:
        task_id: the Celery task id.
        label: what Flower and the logs show as its arguments.
        why: what Flower shows as its keyword arguments: why it carries so many.
        header: the `kafka` header (bridge.records.header).
    """

    handler: str
    task_id: str
    label: str
    header: dict[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Template:
    """What the messages of one handler have in common, as Celery itself makes it.

    A message made whole by Celery costs 77 µs, most of it for what never changes; here Celery makes one per
    handler, and each batch puts in what is its own.
    """

    headers: dict[str, Any]
    body: bytes
    properties: dict[str, Any]
    queue: Queue
    publish: dict[str, Any]
    expires: float | None
    needs: tuple[str, ...] = ()

    @classmethod
    def of(cls, app: Celery, handler: str) -> "Template":
        """The template of a handler, which goes where Celery's own router sends it.

        One that this app does not know goes to the default queue: a delivery that was parked names its handler, which
        may have been renamed since. What becomes of it is the workers' rule for unknown handlers.
        """
        task: Any = app.tasks.get(handler) or _Unknown()
        options = dict(task._get_exec_options())
        expires = options.pop("expires", None)
        routed = app.amqp.router.route(options, handler, (), {}, task)
        queue = routed.get("queue") or app.amqp.queues[app.conf.task_default_queue]
        if isinstance(queue, str):
            queue = app.amqp.queues[queue]
        made = app.amqp.as_task_v2(
            "",
            handler,
            (),
            {},
            time_limit=task.time_limit,
            soft_time_limit=task.soft_time_limit,
            ignore_result=task.ignore_result,
            argsrepr="",
            kwargsrepr="{}",
        )
        _, _, body = dumps(made.body, serializer="json")
        return cls(
            headers=made.headers,
            body=str(body).encode(),
            properties=made.properties,
            queue=queue,
            publish={
                "delivery_mode": routed.get("delivery_mode") or app.conf.task_default_delivery_mode,
                "priority": routed.get("priority") or 0,
            },
            expires=expires,
            needs=tuple(getattr(task, "needs", ())),
        )

    def message(self, outgoing: Outgoing) -> tuple[dict[str, Any], dict[str, Any]]:
        """Headers and properties of the message for one batch, as receivers of `before_task_publish` leave them."""
        headers = dict(self.headers)
        headers["id"] = headers["root_id"] = outgoing.task_id
        headers["argsrepr"] = outgoing.label
        if outgoing.why:
            headers["kwargsrepr"] = f"{{batch: {outgoing.why}}}"
        headers[HEADER] = outgoing.header
        if self.expires is not None:
            headers["expires"] = datetime.fromtimestamp(time.time() + self.expires, UTC).isoformat()
        kafka = outgoing.header
        gates = gates_for(kafka["group"], kafka["topic"], self.needs, again="via" in kafka)
        properties = {**self.properties, "correlation_id": outgoing.task_id, GATES: gates}
        if signals.before_task_publish.receivers:
            signals.before_task_publish.send(
                sender=outgoing.handler,
                body=((), {}, {}),
                headers=headers,
                properties=properties,
                exchange="",
                routing_key=self.queue.name,
                declare=[self.queue],
                retry_policy={},
            )
        return headers, properties


class _Unknown:
    """Stands for a task that there is none of here."""

    time_limit = soft_time_limit = None
    ignore_result = True

    def _get_exec_options(self) -> dict[str, Any]:
        return {}
