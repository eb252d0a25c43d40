"""One recorder process: signals, its pages, the loop."""

import gc
import logging

from bridge.deadletters.recorder.recorder import Recorder
from bridge.http import Readiness, Sidecar
from bridge.process import stop_on_signals
from bridge.settings import Settings
from bridge.topics.extents import extents

logger = logging.getLogger("bridge")


def serve(recorder: Recorder, settings: Settings) -> None:
    """Record until SIGTERM or Ctrl-C.

    Raises:
        DeskOfAnotherKafka, DeskDatabaseNewer: this database is not for this recorder.
        ConsumerFailed: Kafka's client cannot go on; a process that is started anew can.
    """
    sidecar = Sidecar(recorder.registry, recorder.alive, lambda: _readiness(recorder))
    port = sidecar.start(
        settings.environment.DEADLETTERS_HTTP_PORT, "DEADLETTERS_HTTP_PORT", settings.environment.DEADLETTERS_HTTP_HOST
    )
    if port is not None:
        logger.info("http://localhost:%d/healthz /readyz /metrics", port)
    stop_on_signals(recorder.stop, "finishing the transaction under way")
    _spare_collecting()
    try:
        recorder.run()
    finally:
        sidecar.stop()
    logger.info("stopped.")


def _readiness(recorder: Recorder) -> Readiness:
    obstacles = recorder.obstacles()
    return Readiness(not obstacles, obstacles)


def _spare_collecting() -> None:
    """Letters come by thousands and are in no circle: to look for those took a quarter of the time of recording."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def serve_once(recorder: Recorder, settings: Settings) -> None:
    """Record what lies in the topics now, and return; also at SIGTERM or Ctrl-C.

    Raises:
        DeskOfAnotherKafka, DeskDatabaseNewer: this database is not for this recorder.
        DeskUnavailable, KafkaUnavailable, ConsumerFailed: it did not come to the end.
    """
    stop_on_signals(recorder.stop, "finishing the transaction under way")
    _spare_collecting()
    there = extents(settings, recorder.topics)
    recorder.run({each.place: each.end for each in there if each.first < each.end})
    logger.info("recorded what lay in %d partitions: %s.", len(there), recorder.taken)
