"""A receiver of OTLP by HTTP, in a thread: it parses what it gets as a collector does."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    """A span, with its ids in hexadecimal."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: dict[str, Any]
    failed: bool


@dataclass
class Collector:
    """What has come to a port of this machine.

    Attributes:
        metrics: by name, the latest, as OTLP has it.
    """

    port: int = 0
    spans: list[CollectedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Its address, as OTEL_EXPORTER_OTLP_ENDPOINT has it."""
        return f"http://127.0.0.1:{self.port}"

    def of_trace(self, trace: str) -> list[CollectedSpan]:
        """The spans of a trace, by arrival."""
        return [span for span in list(self.spans) if span.trace == trace]

    def take(self, path: str, body: bytes) -> None:
        """Take in a request."""
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for resource in traces.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                self.services.add(service)
                self.spans += [_span(service, span) for scope in resource.scope_spans for span in scope.spans]
        if path == "/v1/metrics":
            for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.services.add(_values(group.resource.attributes)["service.name"])
                self.metrics |= {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}


def _span(service: str, span: Any) -> CollectedSpan:
    return CollectedSpan(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        _values(span.attributes),
        span.status.code == 2,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Receive until the end of the block."""
    collector = Collector()

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
