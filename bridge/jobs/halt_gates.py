"""The gates of halted topics, handlers and keys in the broker: shut while they are halted, and no others.

decision_sync.py says which are halted; dependency_gates.py has the gates of dependencies.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from bridge.dispatch.celery_broker import CeleryBroker
from bridge.formats.gate_names import gated_scope, gated_topic, held_gate, topic_gate
from bridge.formats.group_decision import GroupDecision
from bridge.formats.halt_scope import HaltScope, SmallHalts
from lossless.transport.message_gates import AsideSize

#: The shut gates where the broker has none.
NO_GATES: Final[frozenset[str]] = frozenset()


class HaltGates:
    """The gates of a group's halts. Methods raise HandoffFailed if the broker does not answer."""

    def __init__(self, broker: CeleryBroker, group: str) -> None:
        self._broker, self._group = broker, group

    def shut(self) -> frozenset[str]:
        """Return the shut gates of topics, handlers and keys."""
        with self._broker.gates() as gates:
            names = NO_GATES if gates is None else gates.shut_names().keys()
        return frozenset(name for name in names if self._is_of_halt(name))

    def align(self, shut: Collection[str], halts: Mapping[str, GroupDecision], small: SmallHalts) -> None:
        """Shut the gates of halted topics, handlers and keys, and open those of all others.

        Parameters:
            shut: the gates that were shut before the halts were read: a gate that is shut meanwhile stays shut.
        """
        wanted = {topic_gate(self._group, topic): halt.why for topic, halt in halts.items()}
        wanted |= {held_gate(self._group, scope): halt.why for scope, halt in small.items()}
        if {*shut} == {*wanted}:
            return
        with self._broker.gates() as gates:
            if gates is None:
                return
            for name in sorted({*wanted} - {*shut}):
                gates.shut(name, wanted[name])
            for name in sorted({*shut} - {*wanted}):
                gates.open(name)

    def measure_held(self, scopes: Iterable[HaltScope]) -> dict[HaltScope, AsideSize | None]:
        """Return the messages that wait for each halted handler or key; `None`: the broker has no gates."""
        names = {scope: held_gate(self._group, scope) for scope in scopes}
        with self._broker.gates() as gates:
            aside = None if gates is None else gates.measure_aside(names.values())
        return {scope: None if aside is None else aside[name] for scope, name in names.items()}

    def name_halted(self, scopes: Iterable[HaltScope], names: Mapping[str, str]) -> None:
        """Let the messages of halted handlers name their gate from now on.

        Parameters:
            names: by former name of a handler its current one.
        """
        whole = (scope for scope in scopes if scope.key is None)
        self._broker.held_gates = {
            (scope.topic, scope.under_current_name(names).handler): held_gate(self._group, scope) for scope in whole
        }

    def _is_of_halt(self, name: str) -> bool:
        return gated_topic(self._group, name) is not None or gated_scope(self._group, name) is not None
