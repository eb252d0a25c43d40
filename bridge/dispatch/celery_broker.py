"""The Celery broker: it takes messages and tells how many wait; each call returns after its answer."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import KombuError

from bridge.dispatch.celery_message import MessageTemplate, OutgoingBatch
from bridge.errors import HandoffFailed
from bridge.formats.celery_header import LISTS
from bridge.handler_routes import queue_of
from bridge.ledger.ledger_hook import FATE_PROPERTY
from lossless.transport.channel import Channel
from lossless.transport.message_gates import MessageGates
from lossless.transport.queue_inspection import QueueWeight, weigh_queue
from lossless.worker.large_headers import move_large_headers
from lossless.worker.publisher_confirms import (
    REFUSED,
    ConfirmedPublisher,
    open_confirming_connection,
    supports_confirms,
)

logger = logging.getLogger(__name__)

#: Most messages that one round trip carries.
PIPELINE: Final = 500
#: Seconds that the broker may take to answer: less than a shutdown may take.
ANSWER_WITHIN: Final = 5.0


class _CapturedEntry:
    """A stand-in for the batch of kombu's transport, which keeps the entry instead of pushing it."""

    def __init__(self) -> None:
        self.entry: tuple[str, bytes] | None = None

    def add(self, command: str, key: str, payload: str | bytes, *_: Any) -> None:
        if command == "lpush":
            self.entry = (key, payload.encode() if isinstance(payload, str) else payload)


def make_broker_connection(app: Celery) -> Connection:
    """Return an unopened connection to the Celery broker with timeouts."""
    options: dict[str, Any] = {"socket_timeout": ANSWER_WITHIN, "socket_connect_timeout": ANSWER_WITHIN}
    connection = app.connection_for_write(transport_options={**app.conf.broker_transport_options, **options})
    return open_confirming_connection(connection, read_timeout=ANSWER_WITHIN, write_timeout=ANSWER_WITHIN)


def find_broker_fault(app: Celery) -> str | None:
    """Return what is wrong with the broker's URL, as far as that shows without a connection; `None` if nothing is."""
    try:
        app.connection_for_write().get_transport_cls()
    except ValueError:
        # The error's own words may hold a part of the password.
        return (
            "CELERY_BROKER_URL: its host or port cannot be read. In a user's name and a password write / # ? and @ "
            "as %2F %23 %3F and %40."
        )
    except (KeyError, ImportError) as error:
        return f"CELERY_BROKER_URL: Celery cannot use this kind of broker: {error.args[0]}."
    return None


class CeleryBroker:
    """The connection to the Celery broker, which is made again after a failure."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        #: By source topic and handler, the gate of each halted handler: its messages go past no worker.
        self.held_gates: Mapping[tuple[str, str], str] = {}
        self._templates: dict[str, MessageTemplate] = {}
        self._queues: dict[str, str] = {}
        self._producer: Producer | None = None
        self._connection: Connection | None = None
        self._may_not_weigh = False
        #: On RabbitMQ, which blocks connections that publish: queues are read on another one.
        self._publisher: ConfirmedPublisher | None = None

    def publish(self, outgoing: Iterable[OutgoingBatch]) -> None:
        """Publish batches, many in a round trip if the transport can (kombu's `Producer.batch`).

        Raises:
            HandoffFailed: not all were confirmed; some may be there, and all but those that the error counts must be
                handed off again.
        """
        with self.producer() as producer:
            publisher = self._find_publisher(producer)
        if publisher is not None:
            self._publish_confirmed(publisher, outgoing)
            return
        with self.producer() as producer, producer.batch(max_size=PIPELINE):  # type: ignore[attr-defined]
            for batch in outgoing:
                self._send(producer, batch)

    def _publish_confirmed(self, publisher: ConfirmedPublisher, outgoing: Iterable[OutgoingBatch]) -> None:
        confirmed = 0
        try:
            for batch in outgoing:
                with self.producer():
                    self._template(batch.handler)  # its queue is declared on a connection that is never blocked
                    publisher.publish(batch, partial(self._send_confirmed, batch))
                confirmed += 1
        except HandoffFailed as error:
            error.confirmed = confirmed
            raise
        publisher.forget_arrived()

    def _send_confirmed(self, batch: OutgoingBatch, channel: Any, timeout: float) -> None:
        producer = Producer(channel, auto_declare=False)
        self._send(producer, batch, amqp=True, mandatory=True, confirm_timeout=timeout)

    def entry(self, outgoing: OutgoingBatch, fate_place: str = "") -> tuple[str, bytes]:
        """Return the key of the queue's list, and the entry that kombu's Redis transport would push onto it.

        The ledger pushes the entry in the same step in which it marks the deliveries.

        Parameters:
            fate_place: where the worker looks up the fate of its only delivery (bridge.ledger.ledger_hook).

        Raises:
            HandoffFailed: the broker does not answer (asked once a connection).
        """
        with self.producer() as producer:
            template = self._template(outgoing.handler)
            headers, properties = template.message(outgoing, self._held_gate(outgoing))
            if fate_place:
                properties[FATE_PROPERTY] = fate_place
            channel: Any = producer.channel
            message = channel.prepare_message(
                template.body,
                template.publish["priority"],
                "application/json",
                "utf-8",
                headers,
                {**properties, "delivery_mode": template.publish["delivery_mode"]},
            )
            captured = _CapturedEntry()
            channel.basic_publish(message, exchange="", routing_key=template.queue.name, _publish_batch=captured)
            assert captured.entry is not None
            key, payload = captured.entry
            return f"{channel.global_keyprefix}{key}", payload

    def queue_of(self, handler: str) -> str:
        """Return the queue of a handler; the default queue for one that this app does not know."""
        if handler not in self._queues:
            task = self.app.tasks.get(handler)
            self._queues[handler] = str(self.app.conf.task_default_queue) if task is None else queue_of(self.app, task)
        return self._queues[handler]

    def read_lengths(self, queues: Collection[str]) -> dict[str, int]:
        """Return how many messages wait in each queue; one that does not exist yet has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            channel = producer.channel
            return {queue: _count_messages(channel, queue) for queue in queues}

    def count_delayed(self, queues: Collection[str]) -> dict[str, int]:
        """Return how many messages of each queue wait in the broker until they are due (mostly retries).

        Messages that a gate has set aside do not count: no other message of the queue waits for them.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return {}
            return {queue: channel.waiting_count(queue) - channel.aside_count(queue) for queue in queues}

    def weigh(self, queues: Collection[str]) -> dict[str, QueueWeight]:
        """Return the bytes of each queue and samples of its messages; nothing if the broker cannot tell.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel) or self._may_not_weigh:
                return {}
            found = {queue: weighed for queue in queues if (weighed := weigh_queue(channel, queue, LISTS)) is not None}
        if len(found) < len(queues):
            self._may_not_weigh = True
            logger.warning(
                "This Redis user may not run MEMORY USAGE: the bytes of the queues and the deliveries in their "
                "messages are not known. Allow it: ACL SETUSER … +memory|usage."
            )
        return found

    @contextmanager
    def gates(self) -> Iterator[MessageGates | None]:
        """Yield the broker's gates; `None` if it has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            yield getattr(producer.channel, "gates", None)

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Yield a producer; any failure of the broker inside the block is one kind of error.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        try:
            yield self._producer or self._connect()
        except self._errors() as error:
            self._drop()
            raise HandoffFailed(f"{type(error).__name__}: {_root_cause(error)}") from error

    def close(self) -> None:
        """Drop the connections; the next hand-off makes others."""
        if self._publisher is not None:
            self._publisher.close()
        self._close()

    def _close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                logger.debug("closing a broken connection: %r", error)

    def _drop(self) -> None:
        """Drop a broken connection; RabbitMQ is not asked to close it, which would wait twice more."""
        if self._connection is not None and supports_confirms(self._connection):
            self._connection.collect()
        self._close()

    def _find_publisher(self, producer: Producer) -> ConfirmedPublisher | None:
        """Return the publisher to RabbitMQ; `None` if the broker is another."""
        if self._publisher is None and self._connection is not None and supports_confirms(self._connection):
            self._publisher = ConfirmedPublisher(make_broker_connection(self.app), ANSWER_WITHIN)
        return self._publisher

    def _errors(self) -> tuple[type[BaseException], ...]:
        if self._connection is None:
            return (KombuError, OSError)
        return (KombuError, OSError, REFUSED, *self._connection.connection_errors, *self._connection.channel_errors)

    def _connect(self) -> Producer:
        self._connection = make_broker_connection(self.app)
        self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(ANSWER_WITHIN))
        self._producer = Producer(self._connection.default_channel, auto_declare=False)
        self._templates.clear()
        return self._producer

    def _template(self, handler: str) -> MessageTemplate:
        """Return the template of a handler; its queue is declared when it is made, once a connection."""
        template = self._templates.get(handler)
        if template is None:
            template = MessageTemplate.build(self.app, handler)
            template.queue(self._connection).declare()  # type: ignore[arg-type]
            self._templates[handler] = template
        return template

    def _held_gate(self, outgoing: OutgoingBatch) -> str:
        return self.held_gates.get((outgoing.header["topic"], outgoing.handler), "") if self.held_gates else ""

    def _send(self, producer: Producer, outgoing: OutgoingBatch, *, amqp: bool = False, **options: Any) -> None:
        template = self._template(outgoing.handler)
        headers, properties = template.message(outgoing, self._held_gate(outgoing))
        headers, body = move_large_headers(headers, template.body) if amqp else (headers, template.body)
        producer.publish(
            body,
            exchange="",
            routing_key=template.queue.name,
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
            retry=False,
            **template.publish,
            **properties,
            **options,
        )


def _count_messages(channel: Any, queue: str) -> int:
    if isinstance(channel, Channel):
        # kombu's own `_size` asks in a transaction, which a full Redis refuses.
        with channel.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for step in channel.priority_steps:
                pipe.llen(channel._q_for_pri(queue, step))
            return sum(map(int, pipe.execute()))
    size = getattr(channel, "_size", None)
    if size is not None:
        # A virtual transport: a passive declare raises for an empty list, since Redis has none.
        return int(size(queue))
    return int(channel.queue_declare(queue, passive=True).message_count)


def _root_cause(error: BaseException) -> str:
    """Return the words of the first cause, which kombu wraps in 'delivery is uncertain'."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
