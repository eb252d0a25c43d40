"""The spans of a delivery: hand-off, run, park, dead letter and replay. The only module that makes spans.

The parent of each span is the producer's own context, which stays in the record's headers as it is. Without one it is
the context of the delivery's last hop, `Delivery.trace`. A span links the last hop that is not its parent; the span of
several messages has a link for each.
"""

import logging
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from bridge.formats.delivery import Batch, Delivery, Header
from bridge.formats.text_forms import to_headers
from bridge.formats.trace_context import TRACE, TRACEPARENT, format_context, parse_context

logger = logging.getLogger(__name__)

#: The variable with which a user asks for the semantic conventions for messaging, which are not stable yet.
OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_OPTIONS: Final = {"messaging", "messaging/dup"}
#: The length of a `traceparent`; its ends if the lowest of its flags, "sampled", is not set; and these ends in base64.
_CONTEXT_LENGTH: Final = 55
_UNSAMPLED: Final = tuple("02468ace")
_UNSAMPLED_BYTES: Final = "".join(_UNSAMPLED).encode()
_UNSAMPLED_BASE64: Final = frozenset(b64encode(digit.encode()).decode() for digit in _UNSAMPLED)
_BASE64_LENGTH: Final = 76
#: The headers of the W3C's propagators, of which the context of an unsampled record is made late.
_BAGGAGE: Final = "baggage"
_W3C: Final = {TRACEPARENT, "tracestate", _BAGGAGE}

Attributes = dict[str, str | int | bool]


class SpanRelation(NamedTuple):
    """The relation of a span to the past of one delivery.

    Attributes:
        parent: with the producer's baggage; without a span if the delivery has no trace yet.
        span: the parent's span.
        hop: the last hop, if that is not the parent and is exported.
        is_own: whether the parent is the producer's own context.
    """

    parent: Context
    span: SpanContext
    hop: SpanContext | None = None
    is_own: bool = False

    def keeps_trace(self, span: SpanContext) -> bool:
        """Return whether a span may be the delivery's next hop: without a producer's context its trace id stays."""
        if self.is_own:
            return span.trace_flags.sampled
        return not self.span.is_valid or self.span.trace_id == span.trace_id


class LateContext(Mapping[str, object]):
    """The context of a record that nobody samples, made from its headers only if somebody asks: most never do.

    OpenTelemetry reads a context by `get`, and changes a `copy`.
    """

    def __init__(self, spans: "DeliverySpans", delivery: Delivery) -> None:
        self._spans, self._delivery = spans, delivery

    @cached_property
    def _context(self) -> Context:
        return self._spans.relate(self._delivery.message.headers, self._delivery.trace).parent

    def __getitem__(self, key: str) -> object:
        return self._context[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._context)

    def __len__(self) -> int:
        return len(self._context)

    def copy(self) -> dict[str, object]:
        """Return a copy as a plain dictionary."""
        return self._context.copy()


class SpanPlace(NamedTuple):
    """The place of a message, for a span's name and attributes.

    Attributes:
        operation: `send` or `process`.
        system: `kafka` or `celery`.
        destination: the topic or queue.
    """

    operation: str
    system: str
    destination: str


def find_attributes(
    place: SpanPlace, handler: str, group: str, deliveries: Sequence[Delivery], messaging: bool
) -> Attributes:
    """Return the attributes of a span (pure): no key, value or header of a record.

    Parameters:
        messaging: whether the user has opted in to the semantic conventions for messaging.
    """
    found: Attributes = {"bridge.handler": handler, "bridge.group": group}
    alone = deliveries[0] if len(deliveries) == 1 else None
    if alone is not None:
        found |= {"bridge.delivery": alone.identity, "bridge.attempt": alone.runs + 1}
    if not messaging:
        return found
    found |= {
        "messaging.system": place.system,
        "messaging.operation.name": place.operation,
        "messaging.operation.type": place.operation,
        "messaging.destination.name": place.destination,
    }
    if place.operation == "process":
        found["messaging.consumer.group.name"] = group
    if len(deliveries) > 1:
        found["messaging.batch.message_count"] = len(deliveries)
    elif alone is not None:
        found["messaging.message.id"] = alone.identity
        if place.operation == "process":
            found["messaging.destination.partition.id"] = str(alone.message.partition)
            found["messaging.kafka.offset"] = alone.message.offset
            if alone.message.value is None:
                found["messaging.kafka.message.tombstone"] = True
    return found


class DeliverySpans:
    """The maker of the spans of one process.

    Attributes:
        provider: which exports them.
    """

    attach, detach = staticmethod(context.attach), staticmethod(context.detach)

    def __init__(self, provider: trace.TracerProvider, environ: Mapping[str, str]) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer("celery-kafka-bridge")
        self._messaging = bool(_OPTIONS & {word.strip() for word in environ.get(OPT_IN, "").split(",")})
        self._fields = propagate.get_global_textmap().fields
        self._follows_parents = _follows_parents(provider)
        self._is_quick = self._follows_parents and TRACEPARENT in self._fields and self._fields <= _W3C

    # The past of a delivery

    def relate(self, headers: Iterable[Header], hop: str) -> SpanRelation:
        """Return the relation of a delivery's next span to its producer and its last hop."""
        carrier = {name: (value or b"").decode("latin-1") for name, value in headers if name in self._fields}
        parent = propagate.extract(carrier, Context()) if carrier else Context()
        span = trace.get_current_span(parent).get_span_context()
        last = _read_hop(hop) if hop else None
        if span.is_valid:
            return SpanRelation(parent, span, last if last is not None and last.trace_flags.sampled else None, True)
        if last is None:
            return SpanRelation(parent, span)
        return SpanRelation(trace.set_span_in_context(NonRecordingSpan(last), parent), last)

    def _start(
        self, place: SpanPlace, kind: SpanKind, past: Sequence[SpanRelation], attributes: Attributes
    ) -> Span | None:
        """Start the span of messages with this past; `None`: nobody samples it.

        Of several messages, the first that is sampled gives the trace, and each has a link.
        """
        first = next((each for each in past if each.span.trace_flags.sampled), None)
        if first is None:
            if self._follows_parents and all(each.span.is_valid for each in past):
                return None
            first = next((each for each in past if not each.span.is_valid), past[0])
        links = [Link(each.hop) for each in past if each.hop is not None]
        links += [Link(each.span) for each in past if each is not first and each.span.trace_flags.sampled]
        return self._tracer.start_span(
            f"{place.operation} {place.destination}", first.parent, kind, attributes, links=links
        )

    # Hand-off

    def begin_handoff(self, handler: str, queue: str, header: dict[str, Any]) -> Span | None:
        """Begin the span of the hand-off of a Celery message, and note its context in the `kafka` header."""
        again = "via" in header
        if rows := header.get("again" if again else "messages"):
            count, pairs, more = 1, {"0": rows[0][4]}, {"0": rows[0][5] if len(rows[0]) > 5 else {}}
        else:
            columns = header["again_columns" if again else "columns"]
            count, pairs, more = len(columns["timestamps"]), columns.get("headers") or {}, columns.get("more") or {}
        past = self._relate_rows(count, pairs, more)
        if not past:
            return None
        attributes: Attributes = {"bridge.handler": handler, "bridge.group": str(header["group"])}
        if self._messaging:
            attributes |= {
                "messaging.system": "celery",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": queue,
                **({"messaging.batch.message_count": count} if count > 1 else {}),
            }
        span = self._start(SpanPlace("send", "celery", queue), SpanKind.PRODUCER, [*past.values()], attributes)
        if span is not None:
            now = span.get_span_context()
            header[TRACE] = _format_hop(now)
            for at, each in past.items():
                if TRACE in more.get(at, {}) and each.keeps_trace(now):
                    more[at][TRACE] = header[TRACE]
        return span

    def _relate_rows(self, count: int, pairs: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, SpanRelation]:
        """Return the relations of the records of a header that may be sampled, by their places.

        Parameters:
            pairs: by place, the producer's headers, with values in base64.
            more: by place, what else is known of a delivery.
        """
        found: dict[str, SpanRelation] = {}
        for at, theirs in pairs.items():
            last = None
            for name, value in theirs or ():
                if name == TRACEPARENT:
                    last = value
            # Most end here: it is measured.
            if last is None or len(last) != _BASE64_LENGTH or last[-4:] not in _UNSAMPLED_BASE64 or not self._is_quick:
                own = to_headers([pair for pair in theirs or () if pair[0] in self._fields])
                found[at] = self.relate(own, str(more.get(at, {}).get(TRACE, "")))
        if len(pairs) < count or not all(pairs.values()):
            bare = SpanRelation(Context(), trace.INVALID_SPAN_CONTEXT)
            for at in map(str, range(count)):
                if not pairs.get(at):
                    found[at] = self.relate((), str(more[at][TRACE])) if TRACE in more.get(at, {}) else bare
        return found

    def fail(self, span: Span, error: BaseException) -> None:
        """Note the error with which a span ends."""
        fail_span(span, error)

    def end(self, span: Span) -> None:
        """End a span."""
        end_span(span)

    # The run of a handler

    def find_dropped_context(self, delivery: Delivery) -> Context | None:
        """Return the context in which a delivery runs that nobody samples; `None`: it may be sampled.

        It is measured: it runs for each delivery, of which one in a hundred is sampled.
        """
        if not self._is_quick:
            return None
        value = None
        for name, given in delivery.message.headers:
            if name == TRACEPARENT:
                value = given
        if value is not None:
            if len(value) != _CONTEXT_LENGTH or value[-1] not in _UNSAMPLED_BYTES:
                return None
        elif not delivery.trace.endswith(_UNSAMPLED):
            return None
        return cast(Context, LateContext(self, delivery))

    @contextmanager
    def processing(self, batch: Batch, deliveries: Sequence[Delivery]) -> Iterator["RunSpan"]:
        """Run a handler within the span of its deliveries, with the producer's baggage; note the hop in each."""
        try:
            span, around = self._begin_processing(batch, deliveries)
        except Exception as error:
            logger.debug("no span for %s: %r", batch, error)
            span, around = None, Context()
        token = context.attach(around)
        run = RunSpan(span)
        try:
            yield run
        except BaseException as error:
            run.fail(error)
            raise
        finally:
            context.detach(token)
            if span is not None:
                end_span(span)

    def _begin_processing(self, batch: Batch, deliveries: Sequence[Delivery]) -> tuple[Span | None, Context]:
        past = [self.relate(each.message.headers, each.trace) for each in deliveries]
        # Of the baggage of several messages none is that of all.
        around = past[0].parent if len(past) == 1 else Context()
        if self._follows_parents and all(_is_dropped(each) for each in past):
            return None, around
        place = SpanPlace("process", "kafka", batch.topic)
        attributes = find_attributes(place, batch.handler, batch.group, deliveries, self._messaging)
        span = self._start(place, SpanKind.CONSUMER, past, attributes)
        if span is None:
            return None, around
        for delivery, each in zip(deliveries, past, strict=True):
            _note_hop(delivery, each, span)
        return span, trace.set_span_in_context(span, around)

    def make_outgoing_headers(self, given: Collection[str]) -> list[tuple[str, bytes]]:
        """Return the headers by which a trace goes on in a message that the running handler publishes.

        Parameters:
            given: the names of the headers that the handler gives: with a trace of its own this one's is left out.
        """
        carrier: dict[str, str] = {}
        try:
            propagate.inject(carrier)
        except Exception as error:
            logger.debug("a published message does not carry the trace on: %r", error)
            return []
        has_trace = not self._fields.isdisjoint({*given} - {_BAGGAGE})
        return [
            (name, value.encode())
            for name, value in carrier.items()
            if name not in given and (name == _BAGGAGE or not has_trace)
        ]

    # Records

    @contextmanager
    def sending(self, sent: Sequence[tuple[str, Delivery]], group: str) -> Iterator[None]:
        """Send records of deliveries within a span each, and note the hop, which the record's header is to have.

        Parameters:
            sent: each with the topic to which it goes.
        """
        spans = []
        for topic, delivery in sent:
            try:
                if (span := self._begin_sending(topic, delivery, group)) is not None:
                    spans.append(span)
            except Exception as error:
                logger.debug("no span for %s to %s: %r", delivery.identity, topic, error)
        try:
            yield
        except BaseException as error:
            for span in spans:
                fail_span(span, error)
            raise
        finally:
            for span in spans:
                end_span(span)

    def _begin_sending(self, topic: str, delivery: Delivery, group: str) -> Span | None:
        past = self.relate(delivery.message.headers, delivery.trace)
        place = SpanPlace("send", "kafka", topic)
        attributes = find_attributes(place, delivery.handler, group, [delivery], self._messaging)
        if (span := self._start(place, SpanKind.PRODUCER, [past], attributes)) is not None:
            _note_hop(delivery, past, span)
        return span


class RunSpan:
    """The span of a run, to note how that ended; `None`: it is not sampled."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def fail(self, error: BaseException) -> None:
        """Note the error with which it ended."""
        if self._span is not None:
            fail_span(self._span, error)


def fail_span(span: Span, error: BaseException) -> None:
    """Note the error with which a span ends.

    What the SDK does with it changes nothing of the delivery: it makes the text of an exception, which may raise.
    """
    name = type(error).__name__
    try:
        span.set_status(Status(StatusCode.ERROR, name))
        span.set_attribute("error.type", f"{type(error).__module__}.{name}")
        span.record_exception(error)
    except Exception as failure:
        logger.debug("the error %s of a span is not noted: %s", name, type(failure).__name__)


def end_span(span: Span) -> None:
    """End a span; what an application's own span processor raises changes nothing of the delivery."""
    try:
        span.end()
    except Exception as failure:
        logger.debug("a span is not exported: %s", type(failure).__name__)


def _note_hop(delivery: Delivery, past: SpanRelation, span: Span) -> None:
    """Note a span as the last hop of a delivery."""
    now = span.get_span_context()
    if past.keeps_trace(now):
        delivery.trace = _format_hop(now)


def _is_dropped(past: SpanRelation) -> bool:
    return past.span.is_valid and not past.span.trace_flags.sampled


def _format_hop(span: SpanContext) -> str:
    return format_context(span.trace_id, span.span_id, span.trace_flags)


def _read_hop(text: str) -> SpanContext | None:
    found = parse_context(text)
    return None if found is None else SpanContext(found[0], found[1], True, TraceFlags(found[2]))


def _follows_parents(provider: trace.TracerProvider) -> bool:
    """Return whether the sampler drops every span whose parent is not sampled, as those do that follow the parent."""
    sampler: Any = getattr(provider, "sampler", None)
    if sampler is None:
        return False
    parent = NonRecordingSpan(SpanContext(1, 1, True, TraceFlags(0)))
    # A sampler that decides by the trace id samples the lowest one.
    answer = sampler.should_sample(trace.set_span_in_context(parent, Context()), 1, "process")
    return not answer.decision.is_sampled()
