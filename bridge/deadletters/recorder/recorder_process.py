"""The process of a recorder: signals, health pages and the loop; and a recorder in a thread while a command waits for
a plan.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.bridge_process import stop_on_signals
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.recorder.dead_letter_consumer import name_recorder_group
from bridge.deadletters.recorder.recorder import Recorder
from bridge.errors import BridgeError, KafkaUnavailable
from bridge.formats.text_forms import format_count
from bridge.health_server import Sidecar
from bridge.kafka.consumer_groups import read_members
from bridge.kafka.partition_offsets import read_extents
from bridge.metrics_by_topic import MetricsByTopic
from bridge.readiness import decide_readiness
from bridge.settings import Settings
from bridge.telemetry.otel_sdk import export_metrics
from lossless.background_thread import start_thread

logger = logging.getLogger("bridge")


def serve_recorder(recorder: Recorder, settings: Settings) -> None:
    """Record until SIGTERM or Ctrl-C.

    Raises:
        DeskOfAnotherKafka, DeskDatabaseNewer: this database is not for this recorder.
        ConsumerFailed: Kafka's client cannot continue; restart the process.
    """
    sidecar = Sidecar(recorder.registry, recorder.alive, lambda: decide_readiness(recorder.obstacles()))
    port = sidecar.start(
        settings.environment.DEADLETTERS_HTTP_PORT, "DEADLETTERS_HTTP_PORT", settings.environment.DEADLETTERS_HTTP_HOST
    )
    if port is not None:
        logger.info("http://localhost:%d/healthz /readyz /metrics", port)
    export_metrics(MetricsByTopic(recorder.registry))
    stop_on_signals(recorder.stop, "finishing the running transaction")
    _spare_collecting()
    try:
        recorder.run()
    finally:
        sidecar.stop()
    logger.info("stopped.")


def _spare_collecting() -> None:
    """Collect garbage rarely: letters are no cycles, and the search for cycles cost a quarter of the recording time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def record_once(recorder: Recorder, settings: Settings) -> None:
    """Record all records that the topics have now; also end at SIGTERM or Ctrl-C.

    Raises:
        DeskOfAnotherKafka, DeskDatabaseNewer: this database is not for this recorder.
        DeskUnavailable, KafkaUnavailable, ConsumerFailed: not all was recorded.
    """
    stop_on_signals(recorder.stop, "finishing the running transaction")
    _spare_collecting()
    there = read_extents(settings, recorder.topics)
    recorder.run({each.place: each.end for each in there if each.first < each.end})
    logger.info("recorded all records of %s: %s.", format_count(len(there), "partition"), recorder.metrics.taken)


#: Seconds to wait for Kafka, and for the last transaction.
ANSWER_WITHIN: Final = 5.0
END_WITHIN: Final = 10.0


@contextmanager
def record_meanwhile(desk: DeadLetterService) -> Iterator[None]:
    """Record in a thread of this process if no recorder runs elsewhere; a second one would do no harm."""
    if _runs_elsewhere(desk.settings):
        yield
        return
    recorder = Recorder(desk, duties=())
    thread = start_thread("recorder", lambda: _run_recorder(recorder))
    try:
        yield
    finally:
        recorder.stop()
        thread.stop(END_WITHIN)


def _runs_elsewhere(settings: Settings) -> bool:
    """Return whether the recorders' consumer group has a member; false if Kafka does not answer."""
    try:
        return read_members(settings, name_recorder_group(settings), ANSWER_WITHIN).size > 0
    except KafkaUnavailable:
        return False


def _run_recorder(recorder: Recorder) -> None:
    try:
        recorder.run()
    except BridgeError as error:
        logger.error("dead letters are not recorded: %s", error)
