"""The spans of a delivery: which one is the parent, what is linked, and what travels."""

import json
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import worker_process_shutdown, worker_shutdown
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, ParentBased, TraceIdRatioBased

from bridge.errors import how_to_install
from bridge.formats.celery_header import from_header, header_of, to_header
from bridge.formats.delivery import Batch, Delivery, Message, Via
from bridge.formats.delivery_row import DeliveryRow
from bridge.formats.trace_context import find_trace_id
from bridge.telemetry import otel_sdk
from bridge.telemetry.delivery_spans import OPT_IN, DeliverySpans, SpanRelation
from bridge.telemetry.otel_sdk import explain_no_export, is_exported
from tasks.worker import worker_signals

PRODUCER, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
SPAN = "00f067aa0ba902b7"
CHARGE = "orders.charge"


def traced(trace_id: str = PRODUCER, flags: str = "01") -> tuple[tuple[str, bytes], ...]:
    return (("a", b"1"), ("traceparent", f"00-{trace_id}-{SPAN}-{flags}".encode()))


def delivery(offset: int = 7, headers: Sequence[Any] = (), **more: Any) -> Delivery:
    return Delivery(Message("orders", 3, offset, value=b"secret", headers=tuple(headers)), CHARGE, **more)


def batch(*deliveries: Delivery) -> Batch:
    return Batch(CHARGE, "orders", 3, deliveries, "cluster", "shop", "id")


def handed(*deliveries: Delivery, via: Via | None = None) -> dict[str, Any]:
    rows = [DeliveryRow.from_delivery(each) for each in deliveries]
    return header_of("orders", 3, "cluster", "shop", "id", None, rows, via)


class World:
    """The spans of a process, and what it has exported."""

    def __init__(self, sampler: Any = None, **environ: str) -> None:
        self._exported = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler or ParentBased(DEFAULT_OFF), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exported))
        self.spans = DeliverySpans(provider, environ)

    def hand_off(self, header: dict[str, Any]) -> Batch:
        span = self.spans.begin_handoff(CHARGE, "queue", header)
        if span is not None:
            span.end()
        return from_header(CHARGE, json.loads(json.dumps(header)))

    def run(self, batch: Batch, *deliveries: Delivery, error: BaseException | None = None) -> None:
        with self.spans.processing(batch, deliveries or batch.deliveries) as span:
            if error is not None:
                span.fail(error)

    @property
    def exported(self) -> list[ReadableSpan]:
        return list(self._exported.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.exported]


@pytest.fixture
def world() -> World:
    return World()


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def span_of(span: Any) -> str:
    return f"{getattr(span, 'context', span).span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else span_of(span.parent)


def linked(span: ReadableSpan) -> list[str]:
    return [span_of(link.context) for link in span.links]


def test_hand_off_and_run_are_children_of_the_producer_and_the_run_links_the_hand_off(world: World):
    found = world.hand_off(handed(delivery(headers=traced())))
    world.run(found)
    send, process = world.exported
    assert [send.name, process.name] == ["send queue", "process orders"]
    assert {trace_of(send), trace_of(process)} == {PRODUCER}
    assert [parent_of(send), parent_of(process)] == [SPAN, SPAN]
    assert linked(process) == [span_of(send)]
    assert found.deliveries[0].message.headers == traced(), "the producer's own headers stay"


def test_a_record_that_nobody_samples_has_no_span_and_no_bytes_more(world: World):
    header = handed(delivery(headers=traced(flags="00")))
    before = json.dumps(header)
    found = world.hand_off(header)
    world.run(found)
    assert json.dumps(header) == before
    assert world.exported == []
    assert to_header(found) == {key: value for key, value in header.items() if key != "order"}


def test_the_trace_of_a_record_without_one_begins_with_its_hand_off():
    world = World(ParentBased(TraceIdRatioBased(1.0)))
    found = world.hand_off(handed(delivery()))
    world.run(found, error=ValueError("no"))
    world.run(found)
    send, first, second = world.exported
    assert {trace_of(first), trace_of(second)} == {trace_of(send)}
    assert [parent_of(first), parent_of(second)] == [span_of(send), span_of(first)]


def test_what_the_hand_off_does_not_sample_no_later_hop_samples():
    found = World(ParentBased(DEFAULT_OFF)).hand_off(handed(delivery()))
    later = World(ParentBased(TraceIdRatioBased(1.0)))
    later.run(found)
    assert later.exported == []
    assert find_trace_id((), found.deliveries[0].trace)


def test_a_retry_links_the_run_before_it_and_a_park_the_run_that_failed(world: World):
    found = world.hand_off(handed(delivery(headers=traced())))
    world.run(found, error=ValueError("no"))
    world.run(from_header(CHARGE, to_header(found)))
    parked = replace(found.deliveries[0].parked(), via=Via("orders.retry.5m", 0, 1))
    with world.spans.sending([("orders.retry.5m", parked)], "shop"):
        pass
    again = world.hand_off(handed(parked, via=Via("orders.retry.5m", 0, 1)))
    world.run(again)
    send, run, retry, park, resend, rerun = world.exported
    assert world.names == [
        *("send queue", "process orders", "process orders"),
        *("send orders.retry.5m", "send queue", "process orders"),
    ]
    assert {trace_of(each) for each in world.exported} == {PRODUCER}
    assert [linked(each) for each in (run, retry, park, resend, rerun)] == [
        [span_of(send)],
        [span_of(run)],
        [span_of(run)],
        [span_of(park)],
        [span_of(resend)],
    ]


def test_a_batch_is_handed_off_with_a_link_for_each_message_that_is_sampled(world: World):
    found = world.hand_off(
        handed(delivery(7, traced(flags="00")), delivery(8, traced()), delivery(9, traced(OTHER)), delivery(10))
    )
    (send,) = world.exported
    assert (trace_of(send), parent_of(send)) == (PRODUCER, SPAN)
    assert [f"{link.context.trace_id:032x}" for link in send.links] == [OTHER]
    world.run(found, found.deliveries[2])
    assert trace_of(world.exported[-1]) == OTHER
    assert linked(world.exported[-1]) == [span_of(send)]


def test_a_bulk_call_is_one_span_with_a_link_for_each_message(world: World):
    found = world.hand_off(handed(delivery(8, traced()), delivery(9, traced(OTHER))))
    world.run(found)
    send, process = world.exported
    assert trace_of(process) == PRODUCER
    assert sorted({f"{link.context.trace_id:032x}" for link in process.links}) == sorted({PRODUCER, OTHER})
    assert all(each.trace.split("-")[2] == span_of(process) for each in found.deliveries)
    assert send.links


def test_the_handler_has_the_span_and_the_producers_baggage_sampled_or_not(world: World):
    for flags in ("01", "00"):
        found = batch(delivery(headers=(*traced(flags=flags), ("baggage", b"shop=7"))))
        with world.spans.processing(found, found.deliveries):
            assert baggage.get_baggage("shop") == "7"
            assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == PRODUCER
        assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("given", "carried"),
    [
        ((), {"traceparent", "baggage"}),
        ({"shop"}, {"traceparent", "baggage"}),
        ({"baggage"}, {"traceparent"}),
        ({"traceparent"}, {"baggage"}),
        ({"tracestate", "baggage"}, set()),
    ],
)
def test_a_message_that_a_handler_publishes_carries_trace_and_baggage_on_as_far_as_it_has_none(
    world: World, given: Collection[str], carried: set[str]
):
    found = batch(delivery(headers=(*traced(), ("baggage", b"shop=7"))))
    with world.spans.processing(found, found.deliveries):
        headers = dict(world.spans.make_outgoing_headers(given))
    assert {*headers} == carried
    assert headers.get("baggage", b"shop=7") == b"shop=7"
    assert world.spans.make_outgoing_headers(given) == [], "nothing is traced"


def test_the_context_of_a_record_that_nobody_samples_is_made_only_if_somebody_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    made = []
    relate = world.spans.relate

    def counted(*given: Any) -> SpanRelation:
        made.append(given)
        return relate(*given)

    monkeypatch.setattr(world.spans, "relate", counted)
    unsampled = delivery(headers=(*traced(flags="02"), ("baggage", b"shop=7")))
    around = world.spans.find_dropped_context(unsampled)
    assert around is not None
    token = world.spans.attach(around)
    try:
        assert made == []
        assert baggage.get_baggage("shop") == "7"
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == PRODUCER
        assert baggage.get_all(baggage.set_baggage("more", "8")) == {"shop": "7", "more": "8"}
        assert baggage.get_all(Context(around)) == {"shop": "7"}
    finally:
        world.spans.detach(token)
    assert len(made) == 1
    assert world.spans.find_dropped_context(delivery(headers=traced())) is None
    assert world.spans.find_dropped_context(delivery()) is None
    assert world.spans.find_dropped_context(delivery(trace=f"00-{OTHER}-{SPAN}-00")) is not None
    assert World(TraceIdRatioBased(1.0)).spans.find_dropped_context(unsampled) is None, "it samples by itself"


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xfe", b"00-zz-aa-01", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", None]
)
def test_a_context_that_is_none_is_no_context(world: World, value: bytes | None):
    found = world.hand_off(handed(delivery(headers=(("traceparent", value),))))
    world.run(found)
    assert found.deliveries[0].message.headers == (("traceparent", value),)


def test_a_failed_run_has_the_error_and_no_span_has_a_key_a_value_or_a_header(world: World):
    world.run(batch(delivery(headers=traced())), error=ValueError("no"))
    (span,) = world.exported
    assert span.status.description == "ValueError"
    assert span.attributes is not None
    assert span.attributes["error.type"] == "builtins.ValueError"
    assert "secret" not in span.to_json()
    assert span.attributes["bridge.delivery"] == "orders-3-7:orders.charge"
    assert not [name for name in span.attributes if name.startswith("messaging.")], "they are opted in to"


@pytest.mark.parametrize("option", ["messaging", "http, messaging/dup"])
def test_who_opts_in_gets_the_semantic_conventions_for_messaging(option: str):
    world = World(**{OPT_IN: option})
    world.run(world.hand_off(handed(delivery(headers=traced()))))
    send, process = [dict(span.attributes or {}) for span in world.exported]
    assert send["messaging.system"] == "celery"
    assert send["messaging.destination.name"] == "queue"
    assert {name: process[name] for name in process if name.startswith("messaging.")} == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.consumer.group.name": "shop",
        "messaging.kafka.offset": 7,
        "messaging.message.id": "orders-3-7:orders.charge",
    }


def test_an_error_of_tracing_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> SpanRelation:
        raise RuntimeError("tracing is broken")

    monkeypatch.setattr(world.spans, "relate", fail)
    ran = []
    found = batch(delivery(headers=traced()))
    with world.spans.processing(found, found.deliveries):
        ran.append("run")
    with world.spans.sending([("orders.dlq", found.deliveries[0])], "shop"):
        ran.append("sent")
    assert ran == ["run", "sent"]


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, False, False),
    ],
)
def test_opentelemetrys_own_variables_switch_it_on(environ: dict[str, str], traces: bool, metrics: bool):
    assert (is_exported(environ, "TRACES"), is_exported(environ, "METRICS")) == (traces, metrics)


def test_what_cannot_be_exported_is_said_when_the_process_starts(monkeypatch: pytest.MonkeyPatch):
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}
    assert explain_no_export(asked) == []
    assert "http/protobuf" in explain_no_export({**asked, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})[0]
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert how_to_install("otel") in explain_no_export(asked)[0]
    assert explain_no_export({}) == []


def test_an_address_of_a_collector_without_its_scheme_is_told():
    asked = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces",
    }
    (told,) = explain_no_export(asked)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT must begin with http:// or https://" in told


def test_the_trace_id_of_logs_is_the_producers_or_that_of_the_last_hop():
    hop = f"00-{OTHER}-{SPAN}-01"
    assert find_trace_id(traced(), hop) == PRODUCER
    assert find_trace_id((), hop) == OTHER
    assert find_trace_id((("traceparent", None),), "") == ""


@pytest.fixture(autouse=True)
def _no_context_left() -> Iterator[None]:
    yield
    assert not trace.get_current_span().get_span_context().is_valid


def test_the_last_metrics_and_spans_of_a_process_are_sent_side_by_side_after_its_async_tasks_have_ended(
    monkeypatch: pytest.MonkeyPatch,
):
    flushing, ended = threading.Event(), threading.Event()

    class Collector:
        def force_flush(self) -> None:
            flushing.set()
            ended.wait(30)

    class Metrics:
        def end(self, within: float) -> None:
            assert flushing.wait(10), "the spans wait for the metrics"
            assert within <= otel_sdk.FLUSH_WITHIN
            ended.set()

    monkeypatch.setattr(otel_sdk, "_of_process", (os.getpid(), SimpleNamespace(provider=Collector())))
    monkeypatch.setattr(otel_sdk, "_exports", [Metrics()])
    otel_sdk.end_exports()
    assert ended.is_set()
    for signal, last in (
        (worker_process_shutdown, worker_signals.end_telemetry_of_child),
        (worker_shutdown, worker_signals.end_telemetry),
    ):
        names = [getattr(receiver, "__name__", "") for _, receiver in signal.receivers]
        assert names.index("end_loop") < names.index(last.__name__)
