"""Hand-offs within OpenTelemetry's spans: one for each Celery message, with a link for each of its deliveries."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.celery_message import PackedMessage

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from bridge.telemetry.delivery_spans import DeliverySpans

logger = logging.getLogger(__name__)


class HandoffSpans:
    """The sending of a step of messages, each within a span of its own.

    Parameters:
        send: sends the step, and raises if not all went out.
    """

    def __init__(
        self, spans: "DeliverySpans", broker: CeleryBroker, send: Callable[[Sequence[PackedMessage]], None]
    ) -> None:
        self._spans, self._broker, self._send = spans, broker, send

    def send(self, packed: Sequence[PackedMessage]) -> None:
        """Send a step; an error of tracing changes nothing."""
        begun = [span for message in packed if (span := self._begin(message)) is not None]
        try:
            self._send(packed)
        except Exception as error:
            for span in begun:
                self._spans.fail(span, error)
            raise
        finally:
            for span in begun:
                self._spans.end(span)

    def _begin(self, message: PackedMessage) -> "Span | None":
        handler = message.group.handler
        try:
            return self._spans.begin_handoff(handler, self._broker.queue_of(handler), message.outgoing.header)
        except Exception as error:
            logger.debug("no span for the hand-off of %s: %r", message.outgoing.task_id, error)
            return None
