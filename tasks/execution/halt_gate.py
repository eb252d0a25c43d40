"""The halt of a topic, of a handler or of a key in a worker's process, and the broker's gates that keep its messages.

The order is: Kafka stores the decision, Redis mirrors it, the gate is shut, and the message goes back last.
tasks/policy/failure_decision.py decides that a failure halts the topic.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from celery import Celery

from bridge import settings
from bridge.formats.delivery import Batch, Delivery
from bridge.formats.failure import Failure
from bridge.formats.gate_names import held_gate, topic_gate
from bridge.formats.group_decision import GroupDecision, halt_key, make_halt_data
from bridge.formats.halt_scope import HaltScope
from bridge.ledger.decision_store import make_decision, read_standing_decisions
from lossless.transport.message_gates import MessageGates
from tasks import logs
from tasks.errors import StopConsuming, TopicHalted
from tasks.execution import delivery_log
from tasks.policy.effective_decisions import NO_SMALL_HALTS, DecisionCache, find_main_name

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
    """The halts of the topic, the handler and the keys of one batch.

    Parameters:
        control: the decisions for the batch's group.
    """

    def __init__(self, app: Celery, batch: Batch, control: DecisionCache) -> None:
        self._app, self._control = app, control
        self._topic, self._group, self._task_name = batch.topic, batch.group, batch.handler
        self._key = halt_key(batch.topic)
        #: The handler's current name, and its former ones.
        self._names: tuple[str, ...] = ()
        #: The halted handlers and keys of the topic, as of the last check.
        self.small: Mapping[HaltScope, GroupDecision] = NO_SMALL_HALTS
        self._small_of: Mapping[str, GroupDecision] | None = None
        #: The gates of halted keys that this batch has met.
        self._key_gates: dict[HaltScope, str] = {}

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
        is_halted = self._control.find_in_force(self._key) is not None
        # Of the same look. This is called for each message, and decisions change seldom.
        if self._control.known is not self._small_of:
            self._small_of = self._control.known
            self.small = self._control.get_small_halts(self._topic)
        if self.small:
            self._check_handler()
        if not is_halted or (halt := self._control.halt(self._topic, anew=True)) is None:
            return
        # The message was taken before the gate was shut; or Redis was wiped, and all gates are open.
        with_gates(self._app, lambda gates: self._shut_while_halted(gates, halt))
        raise TopicHalted(f"topic {self._topic!r} is halted by {halt.by}: {halt.why}")

    def check_message(self, deliveries: Sequence[Delivery]) -> None:
        """Return if not all deliveries of a message must wait at one gate.

        Raises:
            TopicHalted: they must: the message goes to the gate as it is.
        """
        self.check()
        gate = self.find_key_gate(deliveries[0])
        if gate and all(self.find_key_gate(delivery) == gate for delivery in deliveries[1:]):
            raise TopicHalted(f"the key of {deliveries[0]} is halted", gate=gate)

    def find_key_gate(self, delivery: Delivery) -> str:
        """Return the gate at which a delivery waits if its key was halted at the last check; empty if it may run."""
        if not self.small or delivery.message.key is None:
            return ""
        for scope in self._list_scopes(delivery.message.key.decode("utf-8", "surrogateescape")):
            if scope in self._key_gates:
                return self._key_gates[scope]
            if scope in self.small and self._keep_back(scope):
                return self._key_gates.setdefault(scope, held_gate(self._group, scope))
        return ""

    def _check_handler(self) -> None:
        for scope in self._list_scopes():
            if scope in self.small and (halt := self._keep_back(scope)) is not None:
                gate = held_gate(self._group, scope)
                raise TopicHalted(f"{scope.words} is halted by {halt.by}: {halt.why}", gate=gate)

    def _keep_back(self, scope: HaltScope) -> GroupDecision | None:
        """Shut the gate of a halted handler or key, and return its halt; `None` if it was resumed a moment ago."""
        self.small = self._control.small_halts(self._topic, anew=True)
        halt = self.small.get(scope)
        if halt is not None:
            with_gates(self._app, lambda gates: self._shut_while_held(gates, scope, halt))
        return halt

    def _list_scopes(self, key: str | None = None) -> list[HaltScope]:
        """Return the handler or one of its keys under each name by which it may be halted: a halt outlasts a rename."""
        if not self._names:
            task: Any = self._app.tasks.get(self._task_name)
            main = self._task_name if task is None else find_main_name(self._app, task)
            others = getattr(self._app.tasks.get(main), "other_names", ())
            self._names = (main, *(name for name in others if name != main))
        return [HaltScope(self._topic, name, key) for name in self._names]

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

    def _shut_while_held(self, gates: MessageGates, scope: HaltScope, halt: GroupDecision) -> None:
        gate = held_gate(self._group, scope)
        if gates.allowed(gate) is not None:
            return
        gates.shut(gate, halt.why)
        # As for a topic: it may have been resumed in between.
        if scope not in self._control.small_halts(self._topic, anew=True):
            gates.open(gate)


def _why(failure: Failure, error: BaseException) -> str:
    """Return the reason of a halt: the handler's own words, if it gave any."""
    words = failure.error_message if isinstance(error, StopConsuming) else ""
    return words or str(failure)
