"""Publisher confirms of RabbitMQ, without which it says nothing of a message that it has not taken."""

from typing import Any

from amqp.exceptions import MessageNacked
from celery.app.amqp import AMQP
from kombu import Connection, pools
from kombu.transport import pyamqp

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


class ConfirmingAMQP(AMQP):
    """Celery's messaging, whose producers wait for the broker: what a task sends is there before that is acknowledged.

    Connections that only consume, and that of events, are left alone: their event loop must not wait.
    """

    _producer_pool: Any

    @property
    def producer_pool(self) -> Any:
        """The producer pool of this process; Celery drops it after a fork."""
        if self._producer_pool is None:
            self._producer_pool = pools.producers[open_confirming_connection(self.app.connection_for_write())]
            self._producer_pool.limit = self.app.pool.limit
        return self._producer_pool

    publisher_pool = producer_pool
