"""The worker's Prometheus metrics, right under prefork, where each child counts in a file of its own.

Where counting fails, deliveries go on, and the log says so once.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec

from bridge.telemetry.otel_sdk import export_metrics
from lossless.background_thread import start_thread
from tasks.logs import harmless_logger, make_harmless
from tasks.policy.failure_decision import REASONS

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from prometheus_client.metrics_core import GaugeMetricFamily

P = ParamSpec("P")
logger = harmless_logger(__name__)


class _Metrics(NamedTuple):
    handled: "Counter"
    retried: "Counter"
    dead_lettered: "Counter"
    duration: "Histogram"
    skipped: "Counter"
    parked: "Counter"
    lost: "Counter"
    duplicates: "Counter"


#: What a process has a file for, in words.
UNSEEN: Final = {"counts": "metrics", "notes": "notes of what is done of a batch"}
_MARK: Final = ".full"
UNSEEN_PROCESSES: Final = "worker_unseen_processes"
#: Why deliveries are sent again.
RETRIED: Final = ("failed", "registry", "postponed", "halted", "dead_letter_unpublished", "not_parked", "limited")

_metrics: _Metrics | None = None
_making = threading.Lock()
_folding = threading.Lock()
#: The id of no process: whose file has what the ended ones have counted.
_NOBODY = 0
#: Seconds for which runs of one task are counted together.
COUNT_EVERY: Final = 0.1
#: Seconds between looks for files of ended processes, where nobody scrapes.
_FOLD_EVERY = 60
_failing = False


def _failed(error: Exception) -> None:
    """Say once that counting fails; make the folder again, so that it need not go on failing."""
    global _failing
    if not _failing:
        logger.warning("metrics are not counted, deliveries go on: %s: %s", type(error).__name__, error)
    _failing = True
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return


def _counting(count: Callable[P, None]) -> Callable[P, None]:
    return make_harmless(count, _failed)


@_counting
def count_runs(handler: str, group: str, outcome: str, *seconds: float) -> None:
    """Count a handler's runs, one for each of `seconds`; `outcome` is `done` or `failed`.

    Parameters:
        group: here and below, the consumer group that handed it off.
    """
    handled, duration = _of_runs(handler, group, outcome)
    handled.inc(len(seconds))
    if len(seconds) == 1:
        duration.observe(seconds[0])
    else:
        _observe(duration, seconds)


def _observe(histogram: "Histogram", amounts: Sequence[float]) -> None:
    """Observe amounts as `histogram.observe` does, with one write for each bucket: each write goes to a file."""
    shown: Any = histogram
    shown._sum.inc(sum(amounts))
    for at, count in Counts(bisect_left(shown._upper_bounds, amount) for amount in amounts).items():
        shown._buckets[at].inc(count)


class RunCounter:
    """The runs of a handler in one task, counted together: one by one counting costs more than a fast handler.

    Parameters:
        on_count: called with an outcome and how long each of its runs took, whenever they are counted.
    """

    def __init__(
        self,
        handler: str,
        group: str,
        on_count: Callable[[str, Sequence[float]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handler, self._group, self._on_count, self._clock = handler, group, on_count, clock
        self._seconds: dict[str, list[float]] = {"done": [], "failed": []}
        self._counted_at = clock()

    def ended(self, outcome: str, seconds: float) -> None:
        """Note the end of a run; it is counted with the next that ends `COUNT_EVERY` seconds after the last count."""
        self._seconds[outcome].append(seconds)
        if self._clock() - self._counted_at >= COUNT_EVERY:
            self.flush()

    def flush(self) -> None:
        """Count what has ended."""
        for outcome, seconds in self._seconds.items():
            if seconds:
                count_runs(self._handler, self._group, outcome, *seconds)
                self._on_count(outcome, seconds)
                seconds.clear()
        self._counted_at = self._clock()


@_counting
def count_retry(handler: str, group: str, reason: str) -> None:
    """Count a delivery that was sent again."""
    _made().retried.labels(handler, group, reason).inc()


@_counting
def count_parked(handler: str, group: str, tier: str) -> None:
    """Count a delivery that was written to a retry topic."""
    _made().parked.labels(handler, group, tier).inc()


@_counting
def count_skipped(handler: str, group: str) -> None:
    """Count a delivery that was settled already and not run again."""
    _made().skipped.labels(handler, group).inc()


@_counting
def count_duplicate(handler: str, group: str) -> None:
    """Count a delivery that was settled as done without a run: another record with its unique name is done."""
    _made().duplicates.labels(handler, group).inc()


@_counting
def count_lost_process(handler: str, group: str) -> None:
    """Count a process that died with deliveries of a handler: out of memory, a crash, its hard time limit."""
    _made().lost.labels(handler, group).inc()


@_counting
def count_dead_letter(handler: str, group: str, reason: str) -> None:
    """Count a dead letter that Kafka has acknowledged."""
    _made().dead_lettered.labels(handler, group, reason).inc()


@_counting
def expect_handlers(handlers: Iterable[str], group: str) -> None:
    """Count 0 of what may become of these handlers' deliveries: `increase()` sees no series that begins with 1."""
    made = _made()
    for handler in handlers:
        for reason in RETRIED:
            made.retried.labels(handler, group, reason)
        for reason in REASONS:
            made.dead_lettered.labels(handler, group, reason)
        for outcome in ("done", "failed"):
            made.handled.labels(handler, group, outcome)
        made.lost.labels(handler, group)
        made.skipped.labels(handler, group)
        made.duplicates.labels(handler, group)


def collect_in_files() -> None:
    """Make this process and its children count in files of one folder, prometheus_client's way for prefork.

    Call it in the worker's main process, before its children start.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        try:
            folder = tempfile.mkdtemp(prefix="worker-metrics-")
        except OSError as error:
            logger.warning("no metrics: there is no folder for the files of the counts: %s", error)
            return
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        global _folder
        _folder = (os.getpid(), folder)
    _allocate_files()
    if values := sys.modules.get("prometheus_client.values"):
        # A handler's module has imported prometheus_client before: its choice was made without the folder.
        values.ValueClass = values.get_value_class()  # type: ignore[attr-defined]


def _allocate_files() -> None:
    """Have prometheus_client allocate its files, also those in which the user's own metrics are counted."""
    from prometheus_client import values

    from tasks.worker.metrics_file import AllocatedDict

    AllocatedDict.on_full = staticmethod(partial(note_unseen_process, "counts"))
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]


def note_unseen_process(what: str, error: OSError) -> None:
    """A process cannot have a file of its own: say so, and leave a mark by which the main process counts it.

    Parameters:
        what: of `UNSEEN`.
    """
    logger.warning("process %d goes on without a file for its %s: %s", os.getpid(), UNSEEN[what], error)
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        with suppress(OSError):  # an empty file needs no room
            (Path(folder) / f"{what}_{os.getpid()}{_MARK}").touch()


def _count_unseen(folder: Path) -> "GaugeMetricFamily":
    from prometheus_client.metrics_core import GaugeMetricFamily

    found = Counts(dict.fromkeys(UNSEEN, 0))
    for mark in folder.glob(f"*{_MARK}"):
        what, _, process = mark.stem.rpartition("_")
        if _has_ended(process):
            mark.unlink(missing_ok=True)
        elif what in UNSEEN:
            found[what] += 1
    help_text = "Processes without a file for their counts, or for their notes of what is done: the disk is full."
    family = GaugeMetricFamily(UNSEEN_PROCESSES, help_text, labels=["what"])
    for what, count in found.items():
        family.add_metric([what], count)
    return family


def serve_metrics(port: int, host: str = "") -> None:
    """Serve `/metrics` from the main process; a port that is taken costs the metrics, not the worker."""
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.multiprocess import MultiProcessCollector

    from bridge.health_server import BoundedServer

    class Collector(MultiProcessCollector):
        def collect(self) -> Any:
            fold_ended()
            yield from super().collect()  # type: ignore[no-untyped-call]
            yield _count_unseen(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))

    registry = CollectorRegistry()
    try:
        Collector(registry)  # type: ignore[no-untyped-call]
    except ValueError as error:
        logger.warning("no metrics: %s", error)
        return
    start_thread("metrics-files", _fold_now_and_then)
    export_metrics(registry)
    try:
        server = BoundedServer.listening(host, port, make_wsgi_app(registry))
    except OSError as error:
        logger.warning(
            "no metrics: port %d cannot be opened at %s (%s); set WORKER_METRICS_PORT to a free one, or "
            "WORKER_METRICS_HOST to an address of this machine.",
            port,
            host or "every address",
            error,
        )
    else:
        server.start("metrics-http")
        logger.info("metrics on http://localhost:%d/metrics", server.server_port)


def fold_ended() -> None:
    """Add up in one file what processes have counted that have ended, and remove theirs.

    Otherwise each child leaves its files behind (`--max-tasks-per-child`). Only in the folder that this process has
    made: in another the processes may be those of another container, whose ids mean nothing here.
    """
    if _folder is None or _folder[0] != os.getpid():
        return
    with _folding:
        for kind in ("counter", "histogram", "summary"):
            _fold(Path(_folder[1]), kind)


def _fold(folder: Path, kind: str) -> None:
    from tasks.worker.metrics_file import FoldedDict

    ended = [file for file in folder.glob(f"{kind}_*.db") if _has_ended(file.stem.rpartition("_")[2])]
    if not ended:
        return
    total, made = folder / f"{kind}_{_NOBODY}.db", folder / f"{kind}_{_NOBODY}.new"
    # The new file is whole and on the disk before what it adds up is removed: if the disk is full, everything stays.
    made.unlink(missing_ok=True)
    sums = FoldedDict(str(made))
    for file in (total, *ended):
        if not file.exists() or not file.stat().st_size:
            continue
        for key, value, timestamp, _ in FoldedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
            before, _ = sums.read_value(key)  # type: ignore[no-untyped-call]
            sums.write_value(key, before + value, timestamp)  # type: ignore[no-untyped-call]
    is_whole = sums.sync()
    sums.close()
    if not is_whole:
        made.unlink(missing_ok=True)
        return
    made.replace(total)
    for file in ended:
        # One that somebody else removed meanwhile must not keep the others, which would be added up again.
        file.unlink(missing_ok=True)


def _has_ended(process: str) -> bool:
    if not process.isdecimal() or int(process) == _NOBODY:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _fold_now_and_then() -> None:
    while _folder is not None:
        time.sleep(_FOLD_EVERY)
        try:
            fold_ended()
        except Exception as error:  # what only observes must not fail
            logger.debug("Metric files were not added up: %r", error)


def remove_metric_files() -> None:
    """Remove the folder that this process has made."""
    global _folder
    if _folder is not None and _folder[0] == os.getpid():
        shutil.rmtree(_folder[1], ignore_errors=True)
        _folder = None


_folder: tuple[int, str] | None = None


@cache
def _of_runs(handler: str, group: str, outcome: str) -> "tuple[Counter, Histogram]":
    """Looked up once: it costs as much as the counting, which every message of a batch pays."""
    made = _made()
    return made.handled.labels(handler, group, outcome), made.duration.labels(handler, group)


def _made() -> _Metrics:
    """The metrics, made when the first is counted: by then it is known where they are counted."""
    global _metrics
    if _metrics is None:
        with _making:
            if _metrics is None:
                _metrics = _make()
    return _metrics


def _make() -> _Metrics:
    from prometheus_client import CollectorRegistry, Counter, Histogram

    _allocate_files()
    # Of a registry of its own: one that could not be made whole is made anew, and no name is taken.
    registry = CollectorRegistry()
    counter = partial(Counter, registry=registry)
    return _Metrics(
        counter("worker_handled", "Runs of a handler, by outcome.", ["handler", "group", "outcome"]),
        counter("worker_retried", "Deliveries sent again, by reason.", ["handler", "group", "reason"]),
        counter("worker_dead_lettered", "Dead letters that Kafka has acknowledged.", ["handler", "group", "reason"]),
        Histogram(
            "worker_handler_duration_seconds",
            "How long a handler ran.",
            ["handler", "group"],
            registry=registry,
            buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
        ),
        counter("worker_skipped", "Deliveries that were settled already and not run again.", ["handler", "group"]),
        counter(
            "worker_parked", "Deliveries that Kafka has in a retry topic, by its delay.", ["handler", "group", "tier"]
        ),
        counter("worker_lost_processes", "Processes that died with deliveries of a handler.", ["handler", "group"]),
        counter("worker_duplicates", "Deliveries that a record with the same name did.", ["handler", "group"]),
    )
