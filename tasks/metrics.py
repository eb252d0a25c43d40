"""What a worker measures; right under prefork, where every child counts for itself."""

import logging
import os
import shutil
import sys
import tempfile
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

logger = logging.getLogger(__name__)

_metrics: "tuple[Counter, Counter, Counter, Histogram, Counter] | None" = None
_making = threading.Lock()


def ran(handler: str, outcome: str, seconds: float) -> None:
    """A handler ran: `outcome` is `done` or `failed`."""
    handled, duration = _of_runs(handler, outcome)
    handled.inc()
    duration.observe(seconds)


def retried(handler: str, reason: str) -> None:
    """A delivery was sent again."""
    _made()[1].labels(handler, reason).inc()


def skipped(handler: str) -> None:
    """A delivery was settled already and not run again."""
    _made()[4].labels(handler).inc()


def dead_lettered(handler: str, reason: str) -> None:
    """Kafka has acknowledged a dead letter."""
    _made()[2].labels(handler, reason).inc()


def collect_in_files() -> None:
    """Make this process and its children count in files of one folder, prometheus_client's way for prefork.

    Call it in the worker's main process, before its children start.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="worker-metrics-")
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        global _folder
        _folder = (os.getpid(), folder)
    if values := sys.modules.get("prometheus_client.values"):
        # A handler's module has imported prometheus_client before: its choice was made without the folder.
        values.ValueClass = values.get_value_class()  # type: ignore[attr-defined]


def serve(port: int) -> None:
    """Serve `/metrics` from the main process; a port that is taken costs the metrics, not the worker."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    try:
        start_http_server(port, registry=registry)
    except OSError as error:
        logger.warning("no metrics: port %d cannot be opened (%s); set WORKER_METRICS_PORT to a free one.", port, error)
    else:
        logger.info("metrics on http://localhost:%d/metrics", port)


def remove_files() -> None:
    """Remove the folder that this process has made."""
    global _folder
    if _folder is not None and _folder[0] == os.getpid():
        shutil.rmtree(_folder[1], ignore_errors=True)
        _folder = None


_folder: tuple[int, str] | None = None


@cache
def _of_runs(handler: str, outcome: str) -> "tuple[Counter, Histogram]":
    """Looked up once: it costs as much as the counting, which every message of a batch pays."""
    handled, _, _, duration, _ = _made()
    return handled.labels(handler, outcome), duration.labels(handler)


def _made() -> Any:
    """The metrics, made when the first is counted: by then it is known where they are counted."""
    global _metrics
    if _metrics is None:
        with _making:
            if _metrics is None:
                _metrics = _make()
    return _metrics


def _make() -> "tuple[Counter, Counter, Counter, Histogram, Counter]":
    from prometheus_client import Counter, Histogram

    return (
        Counter("worker_handled", "Runs of a handler, by outcome.", ["handler", "outcome"]),
        Counter("worker_retried", "Deliveries sent again, by reason.", ["handler", "reason"]),
        Counter("worker_dead_lettered", "Dead letters that Kafka has acknowledged.", ["handler", "reason"]),
        Histogram(
            "worker_handler_duration_seconds",
            "How long a handler ran.",
            ["handler"],
            buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
        ),
        Counter("worker_skipped", "Deliveries that were settled already and not run again.", ["handler"]),
    )
