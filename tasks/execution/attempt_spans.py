"""Attempts within OpenTelemetry's spans if traces are on, else plain ones; a process chooses at its first batch."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.formats.delivery import Delivery
from bridge.formats.outbox import Outbox
from bridge.telemetry.otel_sdk import find_spans
from tasks.declaration.bulk_messages import BulkCall
from tasks.execution.concurrent_run import ConcurrentAttempts
from tasks.execution.handler_attempt import AttemptEnd, HandlerAttempts, find_cause

if TYPE_CHECKING:
    from bridge.telemetry.delivery_spans import DeliverySpans, RunSpan


class AttemptClasses(NamedTuple):
    """The classes of attempts: one after another or in bulk, and side by side."""

    in_turn: type[HandlerAttempts]
    beside: type[ConcurrentAttempts]


@cache
def find_attempt_classes() -> AttemptClasses:
    """Return the classes of attempts of this process; what its handlers publish carries their trace on."""
    spans = find_spans()
    Outbox.make_trace_headers = None if spans is None else spans.make_outgoing_headers
    return AttemptClasses(HandlerAttempts, ConcurrentAttempts) if spans is None else _make_traced(spans)


def _make_traced(spans: "DeliverySpans") -> AttemptClasses:
    find_dropped, attach, detach = spans.find_dropped_context, spans.attach, spans.detach
    run_plainly = HandlerAttempts.run

    class TracedAttempts(HandlerAttempts):
        """Attempts of which each is a span."""

        def run(self, delivery: Delivery) -> AttemptEnd:
            if (dropped := find_dropped(delivery)) is not None:
                token = attach(dropped)
                try:
                    return run_plainly(self, delivery)
                finally:
                    detach(token)
            with spans.processing(self._batch, [delivery]) as span:
                return _note_end(span, run_plainly(self, delivery))

        def run_bulk(self, call: BulkCall, deliveries: Sequence[Delivery]) -> AttemptEnd:
            with spans.processing(self._batch, deliveries) as span:
                return _note_end(span, super().run_bulk(call, deliveries))

    class TracedConcurrentAttempts(ConcurrentAttempts):
        """Attempts side by side, of which each is a span."""

        async def attempt(self, delivery: Delivery) -> AttemptEnd:
            with spans.processing(self._batch, [delivery]) as span:
                return _note_end(span, await super().attempt(delivery))

    return AttemptClasses(TracedAttempts, TracedConcurrentAttempts)


def _note_end(span: "RunSpan", end: AttemptEnd) -> AttemptEnd:
    if end.error is not None:
        cause: Any = find_cause(end.error)
        span.fail(cause)
    return end
