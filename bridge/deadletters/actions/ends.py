"""Where what a plan sends goes: into which partition, and from where on it lies there if it was sent."""

from collections.abc import Iterable

from bridge.deadletters.store.spots import Spot
from bridge.kafka import AdminClient, admin_client
from bridge.settings import Settings
from bridge.topics.cluster import all_topics, shape_of
from bridge.topics.extents import extents
from bridge.topics.making import make
from bridge.topics.ours import Kind, Ours


class Ends:
    """The partitions of the topics into which a plan sends, and the offsets from which on its records lie.

    They are asked for once a topic: what is sent later lies behind, and what this process has sent moves them on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient = admin_client(settings.kafka)
        self._counts: dict[str, int] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def prepare(self, topics: Iterable[tuple[str, str]]) -> None:
        """Look at topics, with the source of each; make those of ours that are missing, where that may be done.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        wanted = {name: source for name, source in topics if name not in self._counts}
        if not wanted:
            return
        known = all_topics(self._admin).topics
        missing = [
            Ours(name, Kind.REPLAY, source)
            for name, source in wanted.items()
            if name not in known and name != source and source in known
        ]
        if missing and self._settings.file.kafka_create_topics:
            made = make(self._admin, missing, {ours.source: shape_of(known[ours.source]) for ours in missing})
            known |= {ours.name: known[ours.source] for ours in missing if ours.name in made}
        self._counts |= {name: len(known[name].partitions) for name in wanted if name in known}
        self._ends |= {each.place: each.end for each in extents(self._settings, wanted)}

    def spot(self, topic: str, partition: int) -> Spot | None:
        """From where on a record lies that is sent now for the source's partition; `None`: there is no such topic."""
        count = self._counts.get(topic)
        if not count:
            return None
        number = partition % count
        return Spot(topic, number, self._ends.get((topic, number), 0))

    def passed(self, spot: Spot) -> None:
        """A record of this process lies there: what is sent next lies behind it."""
        place = (spot.topic, spot.partition)
        self._ends[place] = max(self._ends.get(place, 0), spot.offset + 1)
