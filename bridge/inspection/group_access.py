"""A group's ledger, topic catalog and decisions, as a command opens them beside the bridges."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bridge.formats.group_decision import GroupDecision
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import Ledger
from bridge.ledger.decision_store import DecisionMirror, DecisionOutcome, make_decision, read_decisions
from bridge.settings import Settings

#: Seconds for an answer of Redis, which is asked twice.
ANSWER_WITHIN: Final = 2.0


class DecisionsInForce:
    """What stands for each key of a group.

    Attributes:
        unread: why Kafka could not be asked, which may have what Redis does not know; empty if it was.
        unknown: why more may have been decided than is known; empty where this is all.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """

    def __init__(self, settings: Settings, mirror: DecisionMirror | None) -> None:
        self._settings, self._mirror = settings, mirror
        self.standing: Mapping[str, GroupDecision]
        self.standing, self.unread, self.unknown = read_decisions(settings, mirror)

    def decide(self, key: str, data: Mapping[str, Any] | None, by: str, why: str) -> DecisionOutcome:
        """Decide on a key, knowing what stood.

        Raises:
            NotDecided: neither Kafka nor Redis has it.
        """
        return make_decision(self._settings, self._mirror, key, data, by, why, self.standing.get(key))


@contextmanager
def open_decisions(settings: Settings) -> Iterator[DecisionsInForce]:
    """The decisions of the settings' group.

    Raises:
        NotDecided: neither Kafka nor Redis can be asked.
    """
    ledger = Ledger.of(settings, timeout=ANSWER_WITHIN)
    if ledger is None:
        yield DecisionsInForce(settings, None)
        return
    try:
        yield DecisionsInForce(settings, DecisionMirror(ledger))
    finally:
        ledger.close()


#: Seconds for which Redis is waited for.
LEDGER_ANSWER_WITHIN: Final = 5.0


@contextmanager
def open_ledger(settings: Settings, topics: Iterable[str]) -> Iterator[tuple[Ledger, TopicCatalog]]:
    """The ledger of the settings' group, which must have one, and the catalog with the ids of `topics`.

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
