"""Letters are recorded while somebody waits for how a plan ends: that one died again is told by nothing else."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bridge.deadletters.desk import Desk
from bridge.deadletters.recorder.intake import group_of
from bridge.deadletters.recorder.recorder import Recorder
from bridge.errors import BridgeError
from bridge.kafka import KafkaException, admin_client
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds for Kafka's answer, and for the last transaction.
ANSWER_WITHIN: Final = 5.0
END_WITHIN: Final = 10.0


@contextmanager
def recorded_meanwhile(desk: Desk) -> Iterator[None]:
    """Record in a thread of this process, where no recorder runs elsewhere; a second one would do no harm."""
    if _runs_elsewhere(desk.settings):
        yield
        return
    recorder = Recorder(desk, duties=())
    thread = threading.Thread(target=_record, args=(recorder,), name="recorder", daemon=True)
    thread.start()
    try:
        yield
    finally:
        recorder.stop()
        thread.join(END_WITHIN)


def _runs_elsewhere(settings: Settings) -> bool:
    """Whether the recorders' consumer group has a member; false where Kafka does not say."""
    group = group_of(settings)
    try:
        (future,) = admin_client(settings.kafka).describe_consumer_groups([group]).values()
        return bool(future.result(ANSWER_WITHIN).members)
    except (KafkaException, TimeoutError):
        return False


def _record(recorder: Recorder) -> None:
    try:
        recorder.run()
    except BridgeError as error:
        logger.error("dead letters are not recorded: %s", error)
