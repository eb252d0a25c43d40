"""The gates of topics: those of halted ones are shut, and no others, whoever died on the way, or wiped the broker."""

from collections.abc import Collection, Mapping
from typing import Final

from bridge.handoff.broker import Broker
from bridge.records.control import Decision
from bridge.records.gates import gated_topic, topic_gate

#: The shut gates where the broker has none.
NONE: Final[frozenset[str]] = frozenset()


class TopicGates:
    """The gates of the topics of one group. Each method raises HandoffFailed when the broker does not answer."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker, self._group = broker, group

    def shut(self) -> frozenset[str]:
        """The topics whose gates are shut."""
        with self._broker.gates() as gates:
            names = NONE if gates is None else gates.shut_names().keys()
        topics = {gated_topic(self._group, name) for name in names}
        return frozenset(topic for topic in topics if topic is not None)

    def bring_in_order(self, shut: Collection[str], halts: Mapping[str, Decision]) -> None:
        """Shut the gates of what is halted, and open those of what is not.

        Parameters:
            shut: the topics whose gates were shut before it was asked what is halted: one that is shut meanwhile stays.
        """
        if {*shut} == {*halts}:
            return
        with self._broker.gates() as gates:
            if gates is None:
                return
            for topic in sorted({*halts} - {*shut}):
                gates.shut(topic_gate(self._group, topic), halts[topic].why)
            for topic in sorted({*shut} - {*halts}):
                gates.open(topic_gate(self._group, topic))
