"""Hands deliveries to the Celery broker; returns after the broker has them."""

import logging
import time
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from celery import Celery, signals
from kombu import Connection, Producer, Queue
from kombu.exceptions import KombuError
from kombu.serialization import dumps
from kombu.utils.json import loads

from bridge.errors import HandoffFailed
from bridge.handlers import queue_of
from bridge.handoff.carriers import Carrier, Owner, Waiting, Which, carried, carrier, offsets_in, waiting_of
from bridge.records.message import HEADER
from lossless.transport.channel import Channel
from lossless.transport.looking import first_waiting, sightings

logger = logging.getLogger(__name__)

#: Most messages that one round trip carries.
PIPELINE: Final = 500
#: Messages of a queue that wait, and are looked at for what they say of their failures: the first that are due.
LOOKED_AT: Final = 200
#: Seconds that the broker may take to answer; less than the few that a shutdown may take.
ANSWER_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch on its way to the Celery broker.

    Attributes:
        task_id: the Celery task id.
        label: what Flower and the logs show as its arguments.
        header: the `kafka` header (bridge.records.message).
    """

    handler: str
    task_id: str
    label: str
    header: dict[str, Any]


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

    def message(self, outgoing: Outgoing) -> tuple[dict[str, Any], dict[str, Any]]:
        """Headers and properties of the message for one batch."""
        headers = dict(self.headers)
        headers["id"] = headers["root_id"] = outgoing.task_id
        headers["argsrepr"] = outgoing.label
        headers[HEADER] = outgoing.header
        if self.expires is not None:
            headers["expires"] = datetime.fromtimestamp(time.time() + self.expires, UTC).isoformat()
        return headers, {**self.properties, "correlation_id": outgoing.task_id}


class _Captured:
    """Stands where kombu's transport expects its batch, and keeps the entry instead of pushing it."""

    def __init__(self) -> None:
        self.entry: tuple[str, bytes] | None = None

    def add(self, command: str, key: str, payload: str | bytes, *_: Any) -> None:
        if command == "lpush":
            self.entry = (key, payload.encode() if isinstance(payload, str) else payload)


def connection_to(app: Celery) -> Connection:
    """A connection to the Celery broker, not yet open, whose answers are not waited for without end."""
    options: dict[str, Any] = {"socket_timeout": ANSWER_WITHIN, "socket_connect_timeout": ANSWER_WITHIN}
    if app.connection_for_write().transport_cls in ("amqp", "pyamqp"):
        # Without it RabbitMQ says nothing when it has not taken a message.
        options = {"confirm_publish": True}
    return app.connection_for_write(transport_options={**app.conf.broker_transport_options, **options})


class Handoff:
    """A connection to the Celery broker that is made again whenever it broke."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._templates: dict[str, Template] = {}
        self._producer: Producer | None = None
        self._connection: Connection | None = None

    def publish(self, outgoing: Iterable[Outgoing]) -> None:
        """Hand off batches, many a round trip where the transport can (kombu's `Producer.batch`).

        Raises:
            HandoffFailed: not all was confirmed; some may be there, and all must be handed off again.
        """
        with self._connected() as producer, producer.batch(max_size=PIPELINE):  # type: ignore[attr-defined]
            for each in outgoing:
                self._send(producer, each)

    def entry(self, outgoing: Outgoing) -> tuple[str, bytes]:
        """The key of the queue's list and the entry that kombu's Redis transport would push onto it.

        The ledger pushes it, in the same step in which it marks what it carries.

        Raises:
            HandoffFailed: the broker does not answer (asked once a connection).
        """
        with self._connected() as producer:
            template, headers, properties = self._prepare(producer, outgoing)
            channel: Any = producer.channel
            message = channel.prepare_message(
                template.body,
                template.publish["priority"],
                "application/json",
                "utf-8",
                headers,
                {**properties, "delivery_mode": template.publish["delivery_mode"]},
            )
            captured = _Captured()
            channel.basic_publish(message, exchange="", routing_key=template.queue.name, _publish_batch=captured)
            assert captured.entry is not None
            key, payload = captured.entry
            return f"{channel.global_keyprefix}{key}", payload

    def lengths(self, queues: Collection[str]) -> dict[str, int]:
        """How many messages wait in each of those queues; a queue that does not exist yet has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self._connected() as producer:
            channel = producer.channel
            return {queue: _length(channel, queue) for queue in queues}

    def waiting(self, queues: Collection[str]) -> dict[str, int]:
        """How many messages of each of those queues wait for their time in the broker (retries, mostly).

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self._connected() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return {}
            return {queue: channel.waiting_count(queue) for queue in queues}

    def failing(self, queues: Collection[str]) -> list[Waiting]:
        """What waits in those queues after a failure, as far as the first messages of each that are due say it.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self._connected() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return []
            found: list[Waiting] = []
            for queue in sorted(queues):
                entries = first_waiting(channel, queue, LOOKED_AT)
                headers = [(each, seen.due) for seen in entries for each in _headers_in(seen.raw)]
                found += waiting_of(headers, channel.waiting_count(queue) > len(entries))
            return found

    def search(self, queue: str, suspects: dict[Owner, set[int]]) -> Iterator[None]:
        """Look for deliveries wherever in the broker messages for a queue are: waiting, taken, to be buried.

        One step a message. What is found is taken from `suspects`; what is left there at the end is nowhere. Where
        the transport cannot list its messages nothing is left: it is not known.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self._connected() as producer:
            if not isinstance(producer.channel, Channel):
                suspects.clear()
                return
            burials = queue_of(self._app, self._app.tasks.get(self._app.conf.get("burial_task")))
            for name in sorted({queue, burials}):
                for raw, *_ in sightings(producer.channel, name):
                    for owner, offsets in (found for headers in _headers_in(raw) for found in offsets_in(headers)):
                        suspects.get(owner, set()).difference_update(offsets)
                    if not any(suspects.values()):
                        return
                    yield

    def carriers(self, queues: Collection[str], topic: str, wanted: Collection[Which]) -> dict[Which, Carrier] | None:
        """The messages that carry these deliveries of a topic, as far as they are in the broker.

        Returns:
            `None` where the transport cannot list its messages.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self._connected() as producer:
            if not isinstance(producer.channel, Channel):
                return None
            burials = queue_of(self._app, self._app.tasks.get(self._app.conf.get("burial_task")))
            found: dict[Which, Carrier] = {}
            for queue in sorted({*queues, burials}):
                for raw, where, due in sightings(producer.channel, queue):
                    for headers in _headers_in(raw):
                        for which, more in carried(headers, topic, wanted):
                            found.setdefault(which, carrier(headers, more, queue, where, due))
                    if len(found) == len(wanted):
                        return found
            return found

    def close(self) -> None:
        """Drop the connection; the next hand-off makes another."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                logger.debug("closing a broken connection: %r", error)

    @contextmanager
    def _connected(self) -> Iterator[Producer]:
        """A producer, and the broker's errors as one."""
        try:
            yield self._producer or self._connect()
        except self._errors() as error:
            self.close()
            raise HandoffFailed(f"{type(error).__name__}: {_root(error)}") from error

    def _errors(self) -> tuple[type[BaseException], ...]:
        if self._connection is None:
            return (KombuError, OSError)
        return (KombuError, OSError, *self._connection.connection_errors, *self._connection.channel_errors)

    def _connect(self) -> Producer:
        self._connection = connection_to(self._app)
        self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(ANSWER_WITHIN))
        self._producer = Producer(self._connection.default_channel, auto_declare=False)
        self._templates.clear()
        return self._producer

    def _prepare(self, producer: Producer, outgoing: Outgoing) -> tuple[Template, dict[str, Any], dict[str, Any]]:
        template = self._templates.get(outgoing.handler)
        if template is None:
            template = self._templates[outgoing.handler] = self._make_template(producer, outgoing.handler)
        headers, properties = template.message(outgoing)
        if signals.before_task_publish.receivers:
            signals.before_task_publish.send(
                sender=outgoing.handler,
                body=((), {}, {}),
                headers=headers,
                properties=properties,
                exchange="",
                routing_key=template.queue.name,
                declare=[template.queue],
                retry_policy={},
            )
        return template, headers, properties

    def _send(self, producer: Producer, outgoing: Outgoing) -> None:
        template, headers, properties = self._prepare(producer, outgoing)
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
    _, _, payload = dumps(body, serializer="json")
    return str(payload).encode()


def _headers_in(raw: bytes) -> list[Mapping[str, Any]]:
    """The headers of a message, and those of the one that it is to bury, if it is a burial."""
    try:
        message = loads(raw)
        found = [message["headers"]]
        if HEADER not in message["headers"]:
            found += [argument["headers"] for argument in loads(b64decode(message["body"]))[0]]
    except Exception:  # anybody may put anything into a queue: what cannot be read carries no record of ours
        found = []
    return [headers for headers in found if isinstance(headers, Mapping)]


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
