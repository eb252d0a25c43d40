"""The access of commands to a group's ledger, topic catalog and decisions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bridge.formats.group_decision import GroupDecision
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, DecisionOutcome, make_decision, read_decisions
from bridge.settings import Settings

#: Seconds to wait for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0


class DecisionsInForce:
    """The decisions in force for a group, by key.

    Attributes:
        standing: the decisions.
        unread: why Kafka, which may have more than Redis, could not be asked; empty if it was.
        unknown: why there may be more decisions than are known; empty if these are all.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """

    def __init__(self, settings: Settings, mirror: DecisionMirror | None) -> None:
        self._settings, self._mirror = settings, mirror
        self.standing: Mapping[str, GroupDecision]
        self.standing, self.unread, self.unknown, self._unpublished = read_decisions(settings, mirror)

    def may_differ(self, key: str) -> bool:
        """Return whether Kafka may have another decision for a key than the one in force."""
        return bool(self.unread) or key in self._unpublished

    def decide(self, key: str, data: Mapping[str, Any] | None, by: str, why: str) -> DecisionOutcome:
        """Make a decision for a key, based on the one in force.

        Raises:
            NotDecided: neither Kafka nor Redis has it.
        """
        return make_decision(self._settings, self._mirror, key, data, by, why, self.standing.get(key))


@contextmanager
def open_decisions(settings: Settings) -> Iterator[DecisionsInForce]:
    """Open the decisions of the settings' group.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    ledger = Ledger.from_settings(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        yield DecisionsInForce(settings, None)
        return
    try:
        yield DecisionsInForce(settings, DecisionMirror(ledger))
    finally:
        ledger.close()


#: Seconds to wait for Redis.
LEDGER_ANSWER_WITHIN: Final = 5.0


@contextmanager
def open_ledger(settings: Settings, topics: Iterable[str]) -> Iterator[tuple[Ledger, TopicCatalog]]:
    """Open the ledger of the settings' group, which must have one, and the catalog with the ids of `topics`.

    Raises:
        KafkaUnavailable: Kafka does not say which cluster it is.
    """
    catalog = TopicCatalog(settings, topics)
    catalog.prepare()
    ledger = Ledger.once(settings, LEDGER_ANSWER_WITHIN, catalog.cluster)
    assert ledger is not None
    try:
        yield ledger, catalog
    finally:
        ledger.close()
