"""RabbitMQ publisher confirms: a publish returns once the broker has the message."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from amqp.exceptions import MessageNacked
from celery.app.amqp import AMQP
from kombu import Connection, pools
from kombu.exceptions import OperationalError
from kombu.transport import pyamqp

from lossless.sentinel_address import SentinelUrlConnection

#: The error of a publish that RabbitMQ has refused; kombu has no class for it.
REFUSED = MessageNacked


def supports_confirms(connection: Connection) -> bool:
    """Return whether a connection's broker is RabbitMQ, which confirms on request; Redis answers each command."""
    return issubclass(connection.get_transport_cls(), pyamqp.Transport)


def open_confirming_connection(connection: Connection, **options: Any) -> Connection:
    """Return a connection on which a publish returns when the broker has the message, and raises if it refuses it.

    Parameters:
        options: further transport options, if the broker is RabbitMQ.
    """
    if not supports_confirms(connection):
        return connection
    return connection.clone(
        transport_options={**(connection.transport_options or {}), **options, "confirm_publish": True}
    )


#: Seconds that an unconfirmed message holds up further ones, if RabbitMQ does not say that it blocks publishers.
GIVEN_UP_AFTER: Final = 60.0


#: The most messages that are known to have been confirmed late: one that nobody tries again stays among them.
ARRIVED_KNOWN: Final = 1_000


class ConfirmedPublisher:
    """A publisher on a RabbitMQ connection of its own, which repeats no message that may still arrive.

    RabbitMQ reads what it blocked when its alarm ends, from connections too that the client has closed since. So the
    connection is kept after a timeout, and nothing is published before the message is confirmed or the connection is
    closed.

    Parameters:
        connection: an unopened connection with publisher confirms.
        answer_within: seconds that RabbitMQ may take to confirm a message.
    """

    def __init__(
        self, connection: Connection, answer_within: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection, self._answer_within, self._clock = connection, answer_within, clock
        self._channel: Any = None
        self._blocked = False
        #: The message that is not confirmed, and the time of its timeout.
        self._pending: tuple[Any, float] | None = None
        #: The messages that were confirmed after their timeouts, and not tried again yet.
        self._arrived: deque[Any] = deque(maxlen=ARRIVED_KNOWN)

    def publish(self, key: Any, send: Callable[[Any, float], None]) -> None:
        """Publish a message and return when RabbitMQ has it; at once if an earlier try has arrived.

        Parameters:
            key: what equals the key of another try of the same message.
            send: publishes on a channel, with `confirm_timeout`.

        Raises:
            OperationalError: nothing was sent: publishers are blocked, or an earlier message is not confirmed.
        """
        self._require_confirmed()
        if key in self._arrived:
            self._arrived.remove(key)
            return
        try:
            send(self._channel or self._open(), self._answer_within)
        except TimeoutError:
            if self._channel is not None:  # else there was no connection, and nothing was sent
                self._pending = key, self._clock()
            raise
        except BaseException:
            self.close()
            raise

    def forget_arrived(self) -> None:
        """Forget the messages that were confirmed late: their keys will name other ones."""
        self._arrived.clear()

    def close(self) -> None:
        """Drop the connection; RabbitMQ is not asked to close it, which would wait."""
        self._channel, self._blocked, self._pending = None, False, None
        self._connection.collect()

    def _open(self) -> Any:
        self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=int(self._answer_within))
        opened: Any = self._connection.connection
        opened.on_blocked, opened.on_unblocked = self._note_blocked, self._note_unblocked
        channel: Any = self._connection.channel()
        for event in ("basic_ack", "basic_nack"):
            channel.events[event].add(getattr(self, f"_note_{event}"))
        self._channel = channel
        return channel

    def _require_confirmed(self) -> None:
        """Take in what RabbitMQ has said; raise OperationalError if nothing may be published now."""
        if self._channel is None:
            return
        try:
            while True:
                self._connection.drain_events(timeout=0)
        except TimeoutError:
            pass
        except Exception:  # closed, or the message was returned: it arrives no more
            self.close()
        if self._blocked:
            raise OperationalError("RabbitMQ blocks publishers (an alarm of its memory or disk)")
        if self._pending is not None:
            if self._clock() < self._pending[1] + GIVEN_UP_AFTER:
                raise OperationalError("RabbitMQ has not confirmed the last message, which may still arrive")
            self.close()

    def _note_blocked(self, reason: str) -> None:
        self._blocked = True

    def _note_unblocked(self) -> None:
        self._blocked = False
        if self._pending is not None:
            self._pending = self._pending[0], self._clock()

    def _note_basic_ack(self, *_: Any) -> None:
        if self._pending is not None:
            self._arrived.append(self._pending[0])
            self._pending = None

    def _note_basic_nack(self, *_: Any) -> None:
        self._pending = None


class ConfirmingAMQP(AMQP):
    """Celery's messaging, whose producers wait for the broker: what a task sends is there before that is acknowledged.

    Connections that only consume, and that of events, are left alone: their event loop must not wait.
    """

    #: A Sentinel address may name its master.
    Connection = SentinelUrlConnection
    _producer_pool: Any

    @property
    def producer_pool(self) -> Any:
        """The producer pool of this process; Celery drops it after a fork."""
        if self._producer_pool is None:
            self._producer_pool = pools.producers[open_confirming_connection(self.app.connection_for_write())]
            self._producer_pool.limit = self.app.pool.limit
        return self._producer_pool

    publisher_pool = producer_pool
