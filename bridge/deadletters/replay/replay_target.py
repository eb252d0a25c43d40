"""The target of a replay: the topic to which a letter is sent back, its partition, and the end of that partition.

The headers of a replayed record are in bridge/formats/retry_record.py (`replay_headers`).
"""

from collections.abc import Iterable

from bridge.deadletters.db.plan_item_rows import LogPosition
from bridge.kafka.clients import AdminClient, admin_client
from bridge.kafka.managed_topic import TopicKind, make_topic_beside
from bridge.kafka.partition_offsets import read_extents
from bridge.kafka.topic_admin import create_topics, read_cluster, read_shape
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings


def name_target_topic(settings: Settings, group: str, source: str, *, ours: bool) -> str:
    """Return the topic to which letters of a source topic are replayed."""
    return TopicNames.from_settings(settings.of_group(group)).replay(source) if ours else source


class TargetPartitions:
    """The partitions of a plan's target topics, and the offsets from which on its records lie.

    Each topic is read once: later records have higher offsets, and this process's own records advance them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient = admin_client(settings.kafka)
        self._counts: dict[str, int] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def prepare(self, topics: Iterable[tuple[str, str]]) -> None:
        """Read topics, each with its source; create missing topics of this project if that is allowed."""
        wanted = {name: source for name, source in topics if name not in self._counts}
        if not wanted:
            return
        known = read_cluster(self._admin).topics
        counts = {name: len(known[name].partitions) for name in wanted if name in known}
        missing = [
            make_topic_beside(self._settings, name, TopicKind.REPLAY, source)
            for name, source in wanted.items()
            if name not in known and name != source and source in known
        ]
        if missing and self._settings.file.kafka_create_topics:
            sources = {ours.source: read_shape(known[ours.source]) for ours in missing}
            made = create_topics(self._admin, missing, sources)
            counts |= {ours.name: ours.shape(sources[ours.source]).partitions for ours in missing if ours.name in made}
        self._counts |= counts
        self._ends |= {each.place: each.end for each in read_extents(self._settings, wanted)}

    def spot(self, topic: str, partition: int) -> LogPosition | None:
        """Return the least offset of a record that is sent now for the source's partition; `None` if the topic does
        not exist.
        """
        count = self._counts.get(topic)
        if not count:
            return None
        number = partition % count
        return LogPosition(topic, number, self._ends.get((topic, number), 0))

    def passed(self, spot: LogPosition) -> None:
        """Note the position of a record of this process: the next ones are behind it."""
        place = (spot.topic, spot.partition)
        self._ends[place] = max(self._ends.get(place, 0), spot.offset + 1)
