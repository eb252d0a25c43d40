"""The OpenTelemetry SDK of a process: whether its environment asks for it, and its start and end.

It only observes: an exporter that is down or slow drops spans, and no delivery waits for it.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from bridge.errors import how_to_install
from bridge.formats.delivery import Delivery, Header, Message
from bridge.formats.delivery_identity import Origin
from lossless.background_thread import start_thread

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

    from bridge.telemetry.delivery_spans import DeliverySpans
    from bridge.telemetry.otlp_metrics import MetricsExport, MetricSource

logger = logging.getLogger(__name__)

Signal = Literal["TRACES", "METRICS"]
SIGNALS: Final[tuple[Signal, ...]] = ("TRACES", "METRICS")
#: The variables with the address of a collector.
_ADDRESS: Final = re.compile(r"OTEL_EXPORTER_OTLP_((TRACES|METRICS)_)?ENDPOINT")

#: The variable with the address of the collector, which switches traces and metrics on.
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
#: Seconds that a process which ends gives its last spans and metrics.
FLUSH_WITHIN: Final = 5.0
#: Seconds that a worker's child gives them: the main process waits for its children, and then has its own to send.
CHILD_FLUSH_WITHIN: Final = 2.0

#: The spans of this process, by its id: an exporter's thread does not cross a fork.
_of_process: "tuple[int, DeliverySpans | None] | None" = None
#: The exports of metrics, in the process that serves them.
_exports: "list[MetricsExport]" = []


def is_exported(environ: Mapping[str, str], signal: Signal) -> bool:
    """Return whether OpenTelemetry's own variables ask for a signal by OTLP (pure).

    >>> is_exported({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, "TRACES")
    True
    >>> is_exported({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, "TRACES")
    False
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := environ.get(f"OTEL_{signal}_EXPORTER", "").strip():
        return "otlp" in [name.strip() for name in exporters.split(",")]
    return bool(environ.get(ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def explain_no_export(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence if the environment asks for an export that this process cannot do."""
    if not describe_export(environ):
        return []
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        return [
            "environment: OTEL_… asks for traces or metrics by OTLP, and OpenTelemetry is not installed: nothing is "
            f"exported. Set OTEL_SDK_DISABLED=true, or {how_to_install('otel')}"
        ]
    protocols = {environ.get(name, "") for name in environ if name.endswith("_PROTOCOL") and "OTLP" in name}
    if "grpc" in protocols:
        return [
            "environment: OTLP is sent as http/protobuf (port 4318), not as grpc: set "
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf."
        ]
    addresses = {name: environ.get(name, "").strip() for name in environ if _ADDRESS.fullmatch(name)}
    return [
        f"environment: {name} must begin with http:// or https:// (http://collector:4318): nothing is exported to it."
        for name, address in sorted(addresses.items())
        if address and not address.lower().startswith(("http://", "https://"))
    ]


def describe_export(environ: Mapping[str, str]) -> str:
    """Return the signals that are exported, in words: `traces and metrics`; empty: none (pure)."""
    return " and ".join(signal.lower() for signal in SIGNALS if is_exported(environ, signal))


def import_sdk() -> None:
    """Import the SDK if traces are on: once in the worker's main process, instead of in each of its children."""
    if is_exported(os.environ, "TRACES"):
        with suppress(ImportError):
            import bridge.telemetry.delivery_spans  # noqa: F401


def find_spans() -> "DeliverySpans | None":
    """Return the maker of this process's spans; `None`: traces are off. Called once a process, or rarely."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = (os.getpid(), _make_spans())
    return _of_process[1]


def trace_replay(topic: str, delivery: Origin, headers: Sequence[Header], hop: str) -> str:
    """Return the last hop of a delivery that is sent back: a span of its own, if traces are on.

    Parameters:
        topic: to which it goes.
        headers: the producer's.
        hop: the last one before.
    """
    if (spans := find_spans()) is None:
        return hop
    message = Message(delivery.topic, delivery.partition, delivery.offset, headers=tuple(headers))
    sent = Delivery(message, delivery.handler, trace=hop)
    with spans.sending([(topic, sent)], delivery.group):
        return sent.trace


def _make_spans() -> "DeliverySpans | None":
    try:
        provider = _find_provider()
        if provider is None:
            return None
        from bridge.telemetry.delivery_spans import DeliverySpans

        return DeliverySpans(provider, os.environ)
    except ImportError:
        # `explain_no_export` tells of it when the process starts.
        return None
    except Exception as error:
        logger.warning("no traces: OpenTelemetry cannot be set up: %s: %s", type(error).__name__, error)
        return None


def _find_provider() -> "TracerProvider | None":
    """Return the provider that the application has set up, or else one by the environment; `None`: traces are off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if (api := sys.modules.get("opentelemetry.trace")) is not None:
        given: TracerProvider = api.get_tracer_provider()
        if not isinstance(given, api.ProxyTracerProvider | api.NoOpTracerProvider):
            return given
    return make_provider() if is_exported(os.environ, "TRACES") else None


def make_provider() -> "TracerProvider":
    """Make the provider that exports by OTLP, as OpenTelemetry's variables say, for handlers' own spans too."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=make_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def make_resource() -> "Resource":
    """Return the resource of spans and metrics: that of the environment; the default of its name is the group."""
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource

    named = os.environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {} if named else {SERVICE_NAME: os.environ.get("BRIDGE_GROUP") or "bridge"}
    return Resource.create({SERVICE_INSTANCE_ID: f"{os.uname().nodename}-{os.getpid()}", **own})


def export_metrics(source: "MetricSource") -> None:
    """Export the metrics of this process by OTLP from now on, if the environment asks for it.

    Parameters:
        source: as /metrics shows them.
    """
    if not is_exported(os.environ, "METRICS"):
        return
    try:
        from bridge.telemetry.otlp_metrics import MetricsExport

        _exports.append(MetricsExport(source, make_resource(), os.environ))
    except ImportError:
        # `explain_no_export` tells of it when the process starts.
        return
    except Exception as error:
        logger.warning("no metrics by OTLP: it cannot be set up: %s: %s", type(error).__name__, error)


def end_exports(within: float = FLUSH_WITHIN) -> None:
    """Export the last spans and metrics of a process that ends, side by side.

    Parameters:
        within: seconds for both.
    """
    give_up = time.monotonic() + within
    spans = _of_process[1] if _of_process is not None and _of_process[0] == os.getpid() else None
    flush = None if spans is None else getattr(spans.provider, "force_flush", None)
    # In a thread: the exporter's own time limits are longer.
    flushing = None if flush is None else start_thread("OpenTelemetry's end", flush)
    while _exports:
        _exports.pop().end(max(0.0, give_up - time.monotonic()))
    if flushing is not None:
        flushing.join(max(0.0, give_up - time.monotonic()))
