"""The bridge process: signals, the health server, the consumer loop, and a companion in a thread."""

import logging
import signal
from collections.abc import Callable
from typing import Any, Final, Protocol

from celery import Celery
from prometheus_client import CollectorRegistry

from bridge.consumer.bridge_lifecycle import Bridge
from bridge.handler_routes import Routes
from bridge.health_server import Sidecar
from bridge.metrics_by_topic import MetricsByTopic
from bridge.settings import Settings, hide_password
from bridge.telemetry.otel_sdk import export_metrics
from lossless.background_thread import BackgroundThread

logger = logging.getLogger("bridge")


#: Seconds that a companion has to end.
END_WITHIN: Final = 10.0


class Companion(Protocol):
    """A component that runs in the bridge's process: the recorder of dead letters."""

    @property
    def registry(self) -> CollectorRegistry:
        """Return its metrics, which are shown with the bridge's."""

    def run(self) -> None:
        """Run until `stop` is called."""

    def stop(self) -> None:
        """Make `run` return soon."""

    def obstacles(self) -> list[str]:
        """Return why it does not work, a sentence each."""


class CompanionThread:
    """The thread of a companion; the bridge goes on if that ends.

    Parameters:
        name: for messages, "the recorder".
    """

    def __init__(self, name: str, companion: Companion) -> None:
        self._name, self._companion = name, companion
        self._ended = ""
        self._thread = BackgroundThread(name, self._run)

    def begin(self, registry: CollectorRegistry) -> None:
        """Start it, and add its metrics to these."""
        registry.register(self._companion.registry)
        self._thread.start()

    def end(self) -> None:
        """Stop it, and wait some seconds for its end."""
        self._companion.stop()
        self._thread.stop(END_WITHIN)

    def obstacles(self) -> list[str]:
        """Return its obstacles, a sentence each."""
        found = [self._ended] if self._ended else self._companion.obstacles()
        return [f"{self._name}: {words}" for words in found]

    def _run(self) -> None:
        try:
            self._companion.run()
        except BaseException as error:
            self._ended = f"it has ended, and the bridge goes on without: {error}"
            logger.exception("%s has ended; the bridge goes on without. Start the process again.", self._name)


def run_bridge(app: Celery, settings: Settings, routes: Routes, beside: CompanionThread | None = None) -> None:
    """Run a bridge until SIGTERM or Ctrl-C.

    Parameters:
        beside: the companion to run meanwhile.

    Raises:
        LedgerCannotFsync: a topic asks for handoff_durability="fsync", which this Redis does not support.
        UnfitRedis: the ledger's Redis drops keys when it is full, or is Redis Cluster.
        ConsumerFailed: Kafka's client cannot go on; a restarted process can.
    """
    bridge = Bridge(app, settings, routes)
    sidecar = Sidecar(
        bridge.metrics.registry, bridge.alive, lambda: bridge.readiness(() if beside is None else beside.obstacles())
    )
    port = sidecar.start(settings.environment.BRIDGE_HTTP_PORT, host=settings.environment.BRIDGE_HTTP_HOST)
    export_metrics(MetricsByTopic(bridge.metrics.registry))
    _log_start(settings, routes, port)
    stop_on_signals(bridge.stop, "finishing the hand-off in flight")
    if beside is not None:
        beside.begin(bridge.metrics.registry)
    try:
        bridge.run()
    finally:
        if beside is not None:
            beside.end()
        sidecar.stop()
    logger.info("stopped.")


def _log_start(settings: Settings, routes: Routes, port: int | None) -> None:
    logger.info(
        "group %r, Kafka %s, broker %s",
        settings.group,
        hide_password(settings.kafka["bootstrap.servers"]),
        hide_password(settings.broker_url),
    )
    if settings.config_file:
        logger.info("settings from %s", settings.config_file)
    log_misspelt_variables(settings)
    for handler in routes:
        logger.info("%s → %s (queue %r)", ", ".join(handler.topics), handler.name, handler.queue)
    if port is not None:
        logger.info("http://localhost:%d/healthz /readyz /metrics", port)


def log_misspelt_variables(settings: Settings) -> None:
    """Log the misspelt variables, in each long-running process."""
    for text in settings.misspelt:
        logger.warning("%s", text)


def stop_on_signals(stop: Callable[[], None], words: str) -> None:
    """Call `stop` on SIGTERM and Ctrl-C, and log it."""

    def stopped(number: int, frame: Any) -> None:
        # A second signal has its default effect and ends the process.
        signal.signal(number, signal.SIG_DFL)
        logger.info("%s: %s.", signal.Signals(number).name, words)
        stop()

    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGINT, stopped)
