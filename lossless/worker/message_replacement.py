"""The replacement of a held message: its successor is published first, then the message is acknowledged."""

import threading
from dataclasses import replace
from typing import Any, Final

from celery import Celery
from celery.utils.functional import noop
from celery.utils.log import get_logger
from kombu import Connection
from kombu.asynchronous import get_event_loop
from kombu.exceptions import OperationalError

from lossless.backoff import Backoff
from lossless.worker.delayed_delivery import add_delay
from lossless.worker.large_headers import move_large_headers
from lossless.worker.message_burial import Burial, Successor, make_burial_message
from lossless.worker.publisher_confirms import (
    REFUSED,
    ConfirmedPublisher,
    open_confirming_connection,
    supports_confirms,
)

logger = get_logger(__name__)

#: Seconds that RabbitMQ may take to say that it has a message; the event loop waits for it.
ANSWER_WITHIN = 2
PAUSE: Final = Backoff(first=1, most=30)
# An error that is not the broker's (a channel that kombu has taken down) is not cured by repetition.
FOREIGN_ERRORS = 5

pending_replacements: set["MessageReplacement"] = set()
#: By the address of the broker.
_publishers: dict[str, ConfirmedPublisher] = {}


def bury_message(app: Celery, message: Any, burial: Burial) -> None:
    """Hand a message to the burial task and then acknowledge it; return at once, and repeat until it is done."""
    MessageReplacement(message, make_burial_message(app, burial)).start()


def put_in_place(channel: Any, delivery_tag: str, successor: Successor) -> None:
    """Put a successor in the place of a taken message, in one step, through a channel that has `replace`.

    It is not in the broker yet when this returns, and the message is not gone: the transport sees to both.
    """
    message = _prepare_message(channel, successor)
    message["body"], encoding = channel.encode_body(message["body"], channel.body_encoding)
    message["properties"]["body_encoding"] = encoding
    message["properties"]["delivery_info"].update(exchange=successor.exchange, routing_key=successor.routing_key)
    options = {} if successor.gate is None else {"gate": successor.gate, "first": successor.first}
    channel.replace(delivery_tag, message, queue=successor.queue, eta=successor.eta, **options)


class MessageReplacement:
    """One message and its successor; the message stays unacknowledged until the successor is in the broker.

    Where the channel offers `replace` (ours does) both steps are one, which the channel repeats by itself
    until Redis has answered, after it is closed too. Otherwise a crash between them leaves both messages: something
    may be said twice, never lost. Nothing waits: a failed attempt is repeated by the event loop's timer after a
    growing pause; while it is pending the worker's death or a lost connection gives the message back as usual.
    """

    def __init__(self, message: Any, successor: Successor) -> None:
        self.message = message
        self.successor = successor
        self.published = False
        self.failures = 0
        message.replacement = self

    def start(self) -> None:
        """Begin at once; a pool's thread on a channel without `replace` leaves it to the event loop.

        The event loop's next turn comes after all that arrived in this one, and a worker that is told to stop gives
        back without another turn what is not decided yet: what has ended would run again.
        """
        pending_replacements.add(self)
        hub = get_event_loop()
        if hub is None or threading.current_thread() is threading.main_thread():
            self.attempt()
        elif hasattr(self.message.channel, "replace"):
            self.attempt()
            hub.call_soon(noop)  # it may sleep, and there is room for another message now
        else:
            hub.call_soon(self.attempt)

    def attempt(self) -> None:
        """Try the remaining steps; after an error, schedule the next attempt."""
        if self not in pending_replacements:
            return
        channel = self.message.channel
        if getattr(channel, "closed", False) and not hasattr(channel, "replace"):
            self._abandon("its channel is closed and has given it back")
            return
        try:
            self._replace(channel)
        except Exception as error:
            self._again(channel, error)
        else:
            pending_replacements.discard(self)

    def _replace(self, channel: Any) -> None:
        successor = self.successor
        if hasattr(channel, "replace"):
            put_in_place(channel, self.message.delivery_tag, successor)
            self.message._state = "ACK"
            return
        if not self.published:
            _publish(channel, successor, self)
            self.published = True
        self.message.ack()

    def _again(self, channel: Any, error: Exception) -> None:
        pause = PAUSE.compute_pause(self.failures)
        self.failures += 1
        hub = get_event_loop()
        if hub is None or (self.failures >= FOREIGN_ERRORS and not _is_of_broker(channel, error)):
            self._abandon(repr(error))
            return
        logger.error(
            "Message %s could not be replaced (%s), nothing is lost, next attempt in %s s: %r",
            self.message.delivery_tag, self.successor.why, pause, error,
        )  # fmt: skip
        hub.call_soon(hub.call_later, pause, self.attempt)

    def _abandon(self, why: str) -> None:
        """Give the message back as it is: kept, it would occupy a prefetch slot for as long as the worker lives."""
        pending_replacements.discard(self)
        logger.critical(
            "Message %s could not be replaced and will be delivered again (%s): %s",
            self.message.delivery_tag, self.successor.why, why,
        )  # fmt: skip
        if not getattr(self.message.channel, "closed", False):
            try:
                self.message.requeue()
            except Exception as error:  # it stays unacknowledged: the channel gives it back when it closes
                logger.error("Message %s could not be given back at once: %r", self.message.delivery_tag, error)


def _publish(channel: Any, successor: Successor, key: Any) -> None:
    """Publish on this channel; on RabbitMQ on a connection with publisher confirms.

    To wait on the channel that consumes would deliver what arrives meanwhile, in the middle of another's end.

    Parameters:
        key: the same for each try of a message.
    """
    consumes = getattr(getattr(channel, "connection", None), "client", None)
    if consumes is None or not supports_confirms(consumes):
        channel.basic_publish(_prepare_message(channel, successor), successor.exchange, successor.routing_key)
        return

    headers, body = move_large_headers(successor.headers, successor.body)
    sent = add_delay(replace(successor, headers=headers, body=body))

    def send(confirmed: Any, timeout: float) -> None:
        confirmed.basic_publish(
            _prepare_message(confirmed, sent), sent.exchange, sent.routing_key, mandatory=True, confirm_timeout=timeout,
        )  # fmt: skip

    _find_publisher(consumes).publish(key, send)


def _find_publisher(consumes: Connection) -> ConfirmedPublisher:
    """Return the publisher of this process to the broker of a connection."""
    address = consumes.as_uri(include_password=True)
    if address not in _publishers:
        # Its heartbeats nobody would send.
        publishes = open_confirming_connection(consumes, read_timeout=ANSWER_WITHIN, write_timeout=ANSWER_WITHIN).clone(
            heartbeat=0
        )
        _publishers[address] = ConfirmedPublisher(publishes, ANSWER_WITHIN)
    return _publishers[address]


def _is_of_broker(channel: Any, error: Exception) -> bool:
    """Return whether an error is the broker's (unavailable, full, loading): those pass."""
    transport = getattr(channel, "connection", None)
    known = (*getattr(transport, "connection_errors", ()), *getattr(transport, "channel_errors", ()))
    return isinstance(error, (OperationalError, OSError, REFUSED, *known)) and not isinstance(error, KeyError)


def _prepare_message(channel: Any, successor: Successor) -> dict[str, Any]:
    properties = dict(successor.properties)
    # basic_publish writes into delivery_info: not into ours, which the next attempt needs as it is.
    properties["delivery_info"] = dict(properties.get("delivery_info", {}))
    message: dict[str, Any] = channel.prepare_message(
        successor.body,
        priority=properties.pop("priority", None),  # RabbitMQ's channel takes it once (kombu/transport/pyamqp.py)
        content_type=successor.content_type,
        content_encoding=successor.content_encoding,
        headers=successor.headers,
        properties=properties,
    )
    return message
