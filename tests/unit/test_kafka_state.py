"""What a running bridge knows of Kafka besides its records."""

from typing import Any, ClassVar

from bridge.metrics import BridgeMetrics
from bridge.upkeep.kafka_state import KafkaState


class Catalog:
    """Kafka lists its topics, and nothing else was asked for."""

    def asking(self) -> Any:
        return self

    def told(self) -> None:
        """Nothing was asked for."""

    def hear_topics(self) -> bool:
        return True

    def ends(self) -> None:
        """No end was asked for."""


class Assignment(list[tuple[str, int]]):
    """The partitions that a bridge has."""

    low: ClassVar[dict[Any, int]] = {}
    parked = ()


def test_a_bridge_without_partitions_knows_that_kafka_answers_again():
    catalog: Any = Catalog()
    state = KafkaState(catalog, BridgeMetrics())
    assigned: Any = Assignment([("orders", 0)])
    state.silent("Kafka does not answer.")
    state.hear(assigned)
    # Who has partitions asks where they end: that topics are listed says little of them.
    assert state.down == "Kafka does not answer."
    none: Any = Assignment()
    state.hear(none)
    assert state.down is None
