"""The halt of a topic in a worker's process, and the broker's gates that keep its messages.

The order is: Kafka stores the decision, Redis mirrors it, the gate is shut, and the message goes back last.
tasks/policy/failure_decision.py decides that a failure halts the topic.
"""

import os
import socket
import time
from collections.abc import Callable
from typing import Final

from celery import Celery

from bridge import settings
from bridge.formats.delivery import Batch, Delivery
from bridge.formats.failure import Failure
from bridge.formats.gate_names import topic_gate
from bridge.formats.group_decision import GroupDecision, halt_key, make_halt_data
from bridge.ledger.decision_store import make_decision, read_standing_decisions
from lossless.transport.message_gates import MessageGates
from tasks import logs
from tasks.errors import StopConsuming, TopicHalted
from tasks.execution import delivery_log
from tasks.policy.effective_decisions import DecisionCache

logger = logs.harmless_logger(__name__)


def with_gates(app: Celery, act: Callable[[MessageGates], None]) -> None:
    """Call a function with the broker's gates, if it has any.

    An error does not concern the delivery in flight: bridges correct the gates within a second.
    """
    try:
        with app.producer_or_acquire() as producer:
            gates = getattr(producer.channel, "gates", None)
            if gates is not None:
                act(gates)
    except Exception as error:
        logger.debug("the broker's gates: %r", error)


#: Seconds after which a delivery of a halted topic is tried again if the broker has no gates.
LOOK_AGAIN_AFTER: Final = 10.0


class HaltGuard:
    """The halt of the topic of one batch.

    Parameters:
        control: the decisions for the batch's group.
    """

    def __init__(self, app: Celery, batch: Batch, control: DecisionCache) -> None:
        self._app, self._control = app, control
        self._topic, self._group = batch.topic, batch.group
        self._key = halt_key(batch.topic)

    @classmethod
    def for_batch(cls, app: Celery, batch: Batch) -> "HaltGuard":
        """Return the guard of a batch, with the decisions that this process knows."""
        return cls(app, batch, DecisionCache.get_cache(app, batch.group))

    @property
    def gate(self) -> str:
        """The name of the gate that keeps the topic's messages."""
        return topic_gate(self._group, self._topic)

    def check(self) -> None:
        """Return if the next delivery may run.

        Raises:
            TopicHalted: it must not.
        """
        if self._control.find_in_force(self._key) is None:
            return
        if (halt := self._control.halt(self._topic, anew=True)) is None:
            return
        # The message was taken before the gate was shut; or Redis was wiped, and all gates are open.
        with_gates(self._app, lambda gates: self._shut_while_halted(gates, halt))
        raise TopicHalted(f"topic {self._topic!r} is halted by {halt.by}: {halt.why}")

    def stop(self, delivery: Delivery, failure: Failure, error: BaseException) -> None:
        """Halt the topic.

        Raises:
            NotDecided: neither Kafka nor Redis has taken it.
        """
        chosen = settings.load(self._app, os.environ).of_group(self._group)
        key, by = self._key, f"{delivery.handler} on {socket.gethostname()}"
        known = read_standing_decisions(chosen, self._control.mirror).get(key)
        why = _why(failure, error)
        decision = known
        if decision is None or decision.data is None:
            cause = {"handler": delivery.handler, "record": delivery.message.coordinates, "error": str(failure)}
            data = make_halt_data(known, time.time(), **cause)
            outcome = make_decision(chosen, self._control.mirror, key, data, by, why, known)
            delivery_log.log_halt(delivery, why, outcome.unpublished)
            decision = outcome.decision
        self._control.learn(decision)
        self._control.forget()
        with_gates(self._app, lambda gates: gates.shut(self.gate, why))

    def _shut_while_halted(self, gates: MessageGates, halt: GroupDecision) -> None:
        if gates.allowed(self.gate) is not None:
            return
        gates.shut(self.gate, halt.why)
        # A resume is stored before the gate is opened: it may have happened in between.
        if self._control.halt(self._topic, anew=True) is None:
            gates.open(self.gate)


def _why(failure: Failure, error: BaseException) -> str:
    """Return the reason of a halt: the handler's own words, if it gave any."""
    words = failure.error_message if isinstance(error, StopConsuming) else ""
    return words or str(failure)
