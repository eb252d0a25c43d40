"""Hands deliveries to the Celery broker; returns after the broker has them."""

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from celery import Celery, signals
from kombu import Connection, Producer, Queue
from kombu.exceptions import KombuError
from kombu.serialization import dumps

from bridge.errors import HandoffFailed
from bridge.message import HEADER, Delivery, to_header

logger = logging.getLogger(__name__)

#: Most messages that one round trip carries.
PIPELINE: Final = 500
#: Seconds that the broker may take to answer; less than the few that a shutdown may take.
ANSWER_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Template:
    """What the messages of one handler have in common, as Celery itself makes it.

    A message made whole by Celery costs 77 µs, most of it for what never changes; here Celery makes one per
    handler, and each delivery puts in what is its own.
    """

    headers: dict[str, Any]
    body: bytes
    properties: dict[str, Any]
    queue: Queue
    publish: dict[str, Any]
    expires: float | None

    def message(self, delivery: Delivery) -> tuple[dict[str, Any], dict[str, Any]]:
        """Headers and properties of the message for one delivery."""
        task_id = delivery.task_id
        headers = dict(self.headers)
        headers["id"] = headers["root_id"] = task_id
        headers["argsrepr"] = f"({delivery.message.coordinates})"
        headers[HEADER] = to_header(delivery)
        return headers, {**self.properties, "correlation_id": task_id}


class Handoff:
    """A connection to the Celery broker that is made again whenever it broke."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._templates: dict[str, Template] = {}
        self._producer: Producer | None = None
        self._connection: Connection | None = None

    def publish(self, deliveries: Iterable[Delivery]) -> None:
        """Hand off deliveries, many a round trip where the transport can (kombu's `Producer.batch`).

        Raises:
            HandoffFailed: not all was confirmed; some may be there, and all must be handed off again.
        """
        try:
            producer = self._connected()
            with producer.batch(max_size=PIPELINE):  # type: ignore[attr-defined]
                for delivery in deliveries:
                    self._send(producer, delivery)
        except self._errors() as error:
            self.close()
            raise HandoffFailed(f"{type(error).__name__}: {_root(error)}") from error

    def lengths(self, queues: Collection[str]) -> dict[str, int]:
        """How many messages wait in each of those queues; a queue that does not exist yet has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        try:
            channel = self._connected().channel
            return {queue: _length(channel, queue) for queue in queues}
        except self._errors() as error:
            self.close()
            raise HandoffFailed(f"{type(error).__name__}: {_root(error)}") from error

    def close(self) -> None:
        """Drop the connection; the next hand-off makes another."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                logger.debug("closing a broken connection: %r", error)

    def _errors(self) -> tuple[type[BaseException], ...]:
        if self._connection is None:
            return (KombuError, OSError)
        return (KombuError, OSError, *self._connection.connection_errors, *self._connection.channel_errors)

    def _connected(self) -> Producer:
        if self._producer is None:
            options = {"socket_timeout": ANSWER_WITHIN, "socket_connect_timeout": ANSWER_WITHIN}
            if self._app.connection_for_write().transport_cls in ("amqp", "pyamqp"):
                # Without it RabbitMQ says nothing when it has not taken a message.
                options = {"confirm_publish": True}
            self._connection = self._app.connection_for_write(
                transport_options={**self._app.conf.broker_transport_options, **options}
            )
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(ANSWER_WITHIN))
            self._producer = Producer(self._connection.default_channel, auto_declare=False)
            self._templates.clear()
        return self._producer

    def _send(self, producer: Producer, delivery: Delivery) -> None:
        template = self._templates.get(delivery.handler)
        if template is None:
            template = self._templates[delivery.handler] = self._make_template(producer, delivery.handler)
        headers, properties = template.message(delivery)
        if template.expires is not None:
            headers["expires"] = _iso(time.time() + template.expires)
        if signals.before_task_publish.receivers:
            signals.before_task_publish.send(
                sender=delivery.handler,
                body=((), {}, {}),
                headers=headers,
                properties=properties,
                exchange="",
                routing_key=template.queue.name,
                declare=[template.queue],
                retry_policy={},
            )
        producer.publish(
            template.body,
            exchange="",
            routing_key=template.queue.name,
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
            retry=False,
            **template.publish,
            **properties,
        )

    def _make_template(self, producer: Producer, handler: str) -> Template:
        app = self._app
        task: Any = app.tasks[handler]
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
        queue(self._connection).declare()  # type: ignore[arg-type]
        return Template(
            headers=made.headers,
            body=_body(app, made.body),
            properties=made.properties,
            queue=queue,
            publish={
                "delivery_mode": routed.get("delivery_mode") or app.conf.task_default_delivery_mode,
                "priority": routed.get("priority") or 0,
            },
            expires=expires,
        )


def _body(app: Celery, body: Any) -> bytes:
    _, _, payload = dumps(body, serializer=app.conf.task_serializer)
    return str(payload).encode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _length(channel: Any, queue: str) -> int:
    size = getattr(channel, "_size", None)
    if size is not None:
        # A virtual transport: a passive declare raises for an empty list, since Redis has none.
        return int(size(queue))
    return int(channel.queue_declare(queue, passive=True).message_count)


def _root(error: BaseException) -> str:
    """The first cause's own words: kombu wraps them in 'delivery is uncertain'."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
