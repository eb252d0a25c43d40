"""One bridge process: signals, the sidecar's pages, the loop."""

import logging
import signal
from typing import Any

from celery import Celery

from bridge.handlers import Routes
from bridge.http import Readiness, Sidecar
from bridge.loop.bridge import Bridge
from bridge.settings import Settings, hide_password

logger = logging.getLogger("bridge")


def run(app: Celery, settings: Settings, routes: Routes) -> None:
    """Run a bridge until SIGTERM or Ctrl-C.

    Raises:
        LedgerCannotFsync: a topic asks for handoff_durability="fsync", and this Redis can never say it.
        ConsumerFailed: Kafka's client cannot go on; a process that is started anew can.
    """
    bridge = Bridge(app, settings, routes)
    sidecar = Sidecar(bridge.metrics.registry, bridge.alive, lambda: _readiness(bridge))
    port = sidecar.start(settings.environment.BRIDGE_HTTP_PORT)
    _say_what_runs(settings, routes, port)
    _stop_on_signals(bridge)
    try:
        bridge.run()
    finally:
        sidecar.stop()
    logger.info("stopped.")


def _readiness(bridge: Bridge) -> Readiness:
    """A bridge of which one topic of several is halted consumes, and says what it does not."""
    obstacles, halted = bridge.obstacles(), bridge.halted()
    return Readiness(not obstacles and not (halted and bridge.consumes_nothing()), [*obstacles, *halted])


def _say_what_runs(settings: Settings, routes: Routes, port: int | None) -> None:
    logger.info(
        "group %r, Kafka %s, broker %s",
        settings.group,
        settings.kafka["bootstrap.servers"],
        hide_password(settings.broker_url),
    )
    for text in settings.misspelt:
        logger.warning("%s", text)
    for handler in routes:
        logger.info("%s → %s (queue %r)", ", ".join(handler.topics), handler.name, handler.queue)
    if port is not None:
        logger.info("http://localhost:%d/healthz /readyz /metrics", port)


def _stop_on_signals(bridge: Bridge) -> None:
    def stop(number: int, frame: Any) -> None:
        # A second signal ends the process as if there were no handler.
        signal.signal(number, signal.SIG_DFL)
        logger.info("%s: finishing the hand-off in flight.", signal.Signals(number).name)
        bridge.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
