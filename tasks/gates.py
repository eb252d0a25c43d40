"""The broker's gates, as a child of a worker reaches them."""

from collections.abc import Callable

from celery import Celery

from lossless.transport.gates import Gates
from tasks import observing

logger = observing.log(__name__)


def with_gates(app: Celery, act: Callable[[Gates], None]) -> None:
    """Do something with the broker's gates, where it has any.

    What goes wrong is no fault of the delivery under way: bridges bring the gates in order within a second.
    """
    try:
        with app.producer_or_acquire() as producer:
            gates = getattr(producer.channel, "gates", None)
            if gates is not None:
                act(gates)
    except Exception as error:
        logger.debug("the broker's gates: %r", error)
