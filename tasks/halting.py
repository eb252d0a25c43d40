"""A topic is halted: what a worker's process does about it.

Who asked for it is kept, and nothing of the topic runs until a person resumes it. In this order: Kafka has the decision
(`bridge.ledger.deciding`), Redis mirrors it, the topic's gate is shut, and last the message goes back, in front of all
that the gate keeps. Dies the process before the last step, the message comes back by itself: it finds the topic
halted, or runs and asks again.
"""

import os
import socket
import time
from typing import Final

from celery import Celery

from bridge import settings
from bridge.ledger.deciding import decide, standing
from bridge.records.control import Decision, halt, halt_key
from bridge.records.failure import Failure
from bridge.records.gates import topic_gate
from bridge.records.message import Batch, Delivery
from lossless.transport.gates import Gates
from tasks import observing, telling
from tasks.control import Control
from tasks.errors import StopConsuming, TopicHalted
from tasks.gates import with_gates

logger = observing.log(__name__)

#: Seconds after which what was given back is looked at again, where the broker has no gates.
LOOK_AGAIN_AFTER: Final = 10.0


class Halting:
    """The halt of the topic of one batch.

    Parameters:
        control: what was decided for the batch's group.
    """

    def __init__(self, app: Celery, batch: Batch, control: Control) -> None:
        self._app, self._control = app, control
        self._topic, self._group = batch.topic, batch.group

    @classmethod
    def of(cls, app: Celery, batch: Batch) -> "Halting":
        """With what this process knows."""
        return cls(app, batch, Control.of(app, batch.group))

    @property
    def gate(self) -> str:
        """What keeps the topic's messages."""
        return topic_gate(self._group, self._topic)

    def check(self) -> None:
        """Let the next delivery run.

        Raises:
            TopicHalted: it must not.
        """
        if self._control.halt(self._topic) is None or (found := self._control.halt(self._topic, anew=True)) is None:
            return
        # It was taken before the gate was shut; or Redis was wiped, and all gates are open.
        with_gates(self._app, lambda gates: self._shut_while_halted(gates, found))
        raise TopicHalted(f"topic {self._topic!r} is halted by {found.by}: {found.why}")

    def stop(self, delivery: Delivery, failure: Failure, error: BaseException) -> None:
        """Halt the topic.

        Raises:
            NotDecided: neither Kafka nor Redis has taken it.
        """
        chosen = settings.load(self._app, os.environ).of_group(self._group)
        key, by = halt_key(self._topic), f"{delivery.handler} on {socket.gethostname()}"
        before = standing(chosen, self._control.mirror).get(key)
        why = _why(failure, error)
        stands = before
        if stands is None or stands.data is None:
            cause = {"handler": delivery.handler, "record": delivery.message.coordinates, "error": str(failure)}
            data = halt(before, time.time(), **cause)
            outcome = decide(chosen, self._control.mirror, key, data, by, why, before)
            telling.halted(delivery, why, outcome.unpublished)
            stands = outcome.decision
        self._control.learn(stands)
        self._control.forget()
        with_gates(self._app, lambda gates: gates.shut(self.gate, why))

    def _shut_while_halted(self, gates: Gates, found: Decision) -> None:
        if gates.allowed(self.gate) is not None:
            return
        gates.shut(self.gate, found.why)
        # Whoever resumes it says so first, and opens the gate then: that may have been in between.
        if self._control.halt(self._topic, anew=True) is None:
            gates.open(self.gate)


def _why(failure: Failure, error: BaseException) -> str:
    """In the handler's own words, where it gave any."""
    said = failure.error_message if isinstance(error, StopConsuming) else ""
    return said or str(failure)
