"""A cluster as Kafka tells of it: which topics there are, asked for in one way."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bridge.errors import KafkaUnavailable
from bridge.kafka import AdminClient, Consumer, KafkaException
from bridge.topics.ours import Shape

#: Seconds for one question to Kafka.
ANSWER_WITHIN: Final = 5.0
#: How the ids of librdkafka's mock clusters begin: it makes topics on first use, and answers fewer questions.
MOCK: Final = "mockCluster"


class Cluster(NamedTuple):
    """What Kafka has told.

    Attributes:
        id: which cluster it is.
        named: each topic of which it has told, with its metadata; one that has an `error` may not be there.
    """

    id: str
    named: Mapping[str, Any]

    @property
    def is_mock(self) -> bool:
        """Whether it is librdkafka's."""
        return self.id.startswith(MOCK)

    @property
    def topics(self) -> dict[str, Any]:
        """The topics that there are."""
        return {name: topic for name, topic in self.named.items() if topic.error is None}

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each."""
        return {name: shape_of(topic) for name, topic in self.topics.items()}


def all_topics(client: AdminClient | Consumer, within: float | None = None) -> Cluster:
    """Ask for all topics: of one that is missing, a broker may make it as it pleases.

    Parameters:
        within: seconds for the answer; as usual if `None`.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    try:
        found = client.list_topics(timeout=ANSWER_WITHIN if within is None else within)
    except KafkaException as error:
        raise KafkaUnavailable(f"Kafka does not answer: {error.args[0].str()}.") from None
    return Cluster(str(found.cluster_id), found.topics)


def shape_of(topic: Any) -> Shape:
    """The shape of a topic, of its metadata."""
    parts = topic.partitions.values()
    return Shape(len(parts), max((len(part.replicas) for part in parts), default=1))
