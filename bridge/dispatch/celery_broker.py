"""The Celery broker: it takes messages and says how many wait; each call returns after its answer."""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
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
from lossless.worker.publisher_confirms import REFUSED, open_confirming_connection, supports_confirms

logger = logging.getLogger(__name__)

#: Most messages that one round trip carries.
PIPELINE: Final = 500
#: Seconds that the broker may take to answer; less than the few that a shutdown may take.
ANSWER_WITHIN: Final = 5.0


class _CapturedEntry:
    """Stands where kombu's transport expects its batch, and keeps the entry instead of pushing it."""

    def __init__(self) -> None:
        self.entry: tuple[str, bytes] | None = None

    def add(self, command: str, key: str, payload: str | bytes, *_: Any) -> None:
        if command == "lpush":
            self.entry = (key, payload.encode() if isinstance(payload, str) else payload)


def make_broker_connection(app: Celery) -> Connection:
    """A connection to the Celery broker, not yet open, whose answers are not waited for without end."""
    options: dict[str, Any] = {"socket_timeout": ANSWER_WITHIN, "socket_connect_timeout": ANSWER_WITHIN}
    connection = app.connection_for_write(transport_options={**app.conf.broker_transport_options, **options})
    return open_confirming_connection(connection, read_timeout=ANSWER_WITHIN, write_timeout=ANSWER_WITHIN)


def find_broker_fault(app: Celery) -> str | None:
    """What is wrong with the broker's URL, as far as it can be told without a connection; `None` if nothing is."""
    try:
        app.connection_for_write().get_transport_cls()
    except ValueError:
        # Its own words may hold what stands before a `/` in a password.
        return (
            "CELERY_BROKER_URL: its host or port cannot be read. In a user's name and a password write / # ? and @ "
            "as %2F %23 %3F and %40."
        )
    except (KeyError, ImportError) as error:
        return f"CELERY_BROKER_URL: Celery cannot use this kind of broker: {error.args[0]}."
    return None


class CeleryBroker:
    """A connection to the Celery broker that is made again whenever it broke."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self._templates: dict[str, MessageTemplate] = {}
        self._queues: dict[str, str] = {}
        self._producer: Producer | None = None
        self._connection: Connection | None = None
        self._may_not_weigh = False

    def publish(self, outgoing: Iterable[OutgoingBatch]) -> None:
        """Publish batches, many a round trip where the transport can (kombu's `Producer.batch`).

        Raises:
            HandoffFailed: not all was confirmed; some may be there, and all must be handed off again.
        """
        with self.producer() as producer, producer.batch(max_size=PIPELINE):  # type: ignore[attr-defined]
            for each in outgoing:
                self._send(producer, each)

    def entry(self, outgoing: OutgoingBatch, look: str = "") -> tuple[str, bytes]:
        """The key of the queue's list and the entry that kombu's Redis transport would push onto it.

        The ledger pushes it, in the same step in which it marks what it carries.

        Parameters:
            look: where the fate of its only delivery is looked up as it is taken (bridge.ledger.ledger_hook).

        Raises:
            HandoffFailed: the broker does not answer (asked once a connection).
        """
        with self.producer() as producer:
            template = self._template(outgoing.handler)
            headers, properties = template.message(outgoing)
            if look:
                properties[FATE_PROPERTY] = look
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
        """The queue that a handler's deliveries go to; of one that this app does not know, the default."""
        if handler not in self._queues:
            task = self.app.tasks.get(handler)
            self._queues[handler] = str(self.app.conf.task_default_queue) if task is None else queue_of(self.app, task)
        return self._queues[handler]

    def lengths(self, queues: Collection[str]) -> dict[str, int]:
        """How many messages wait in each of those queues; a queue that does not exist yet has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            channel = producer.channel
            return {queue: _count_messages(channel, queue) for queue in queues}

    def waiting(self, queues: Collection[str]) -> dict[str, int]:
        """How many messages of each of those queues wait for their time in the broker (retries, mostly).

        Not those that a gate has set aside: others of the queue are not to wait for them.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            channel: Any = producer.channel
            if not isinstance(channel, Channel):
                return {}
            return {queue: channel.waiting_count(queue) - channel.aside_count(queue) for queue in queues}

    def weigh(self, queues: Collection[str]) -> dict[str, QueueWeight]:
        """What each of those queues weighs, and what some of its messages carry; nothing where that cannot be asked.

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
                "This Redis user may not run MEMORY USAGE: how many bytes the queues take is not known, nor how many "
                "deliveries their messages carry. Allow it: ACL SETUSER … +memory|usage."
            )
        return found

    @contextmanager
    def gates(self) -> Iterator[MessageGates | None]:
        """The broker's gates, `None` where it has none.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        with self.producer() as producer:
            yield getattr(producer.channel, "gates", None)

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """A producer; whatever goes wrong with the broker inside the block is one kind of error.

        Raises:
            HandoffFailed: the broker does not answer.
        """
        try:
            yield self._producer or self._connect()
        except self._errors() as error:
            self._drop()
            raise HandoffFailed(f"{type(error).__name__}: {_root_cause(error)}") from error

    def close(self) -> None:
        """Drop the connection; the next hand-off makes another."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:
                logger.debug("closing a broken connection: %r", error)

    def _drop(self) -> None:
        """Drop a connection that broke; RabbitMQ is not asked to agree, for which it would be waited twice more."""
        if self._connection is not None and supports_confirms(self._connection):
            self._connection.collect()
        self.close()

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
        """Made when first asked for on a connection: its queue is declared there."""
        template = self._templates.get(handler)
        if template is None:
            template = MessageTemplate.of(self.app, handler)
            template.queue(self._connection).declare()  # type: ignore[arg-type]
            self._templates[handler] = template
        return template

    def _send(self, producer: Producer, outgoing: OutgoingBatch) -> None:
        template = self._template(outgoing.handler)
        headers, properties = template.message(outgoing)
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


def _count_messages(channel: Any, queue: str) -> int:
    size = getattr(channel, "_size", None)
    if size is not None:
        # A virtual transport: a passive declare raises for an empty list, since Redis has none.
        return int(size(queue))
    return int(channel.queue_declare(queue, passive=True).message_count)


def _root_cause(error: BaseException) -> str:
    """The first cause's own words: kombu wraps them in 'delivery is uncertain'."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
