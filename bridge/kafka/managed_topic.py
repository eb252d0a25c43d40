"""The topics that the bridge manages beside a source topic: which are needed, their configuration, and its faults
(pure).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.formats.text_forms import format_count
from bridge.handler_routes import Routes
from bridge.kafka import retry_placement
from bridge.kafka.topic_names import TopicNames
from bridge.settings import Settings

#: How much larger than the source's record ours may be: our headers, cut as bridge.formats.failure describes.
HEADROOM: Final = 65_536
#: The default of the largest record that a topic takes, in bytes (Kafka's message.max.bytes).
USUAL_RECORD_SIZE: Final = 1_048_588
DAY: Final = 86_400_000
#: Retention of a retry or replay topic beyond twice its delay: bridges may be down for as long.
SPARE_RETENTION: Final = 7 * DAY


class TopicKind(StrEnum):
    """The purpose of a topic."""

    SOURCE = "source"
    RETRY = "retry"
    REPLAY = "replay"
    DEAD_LETTERS = "dead letters"
    CONTROL = "control"


class TopicShape(NamedTuple):
    """The partitions of a topic, and the replicas of each."""

    partitions: int
    replicas: int = 1


class ReplicaState(NamedTuple):
    """The state of the replicas of a topic's partitions.

    Attributes:
        behind: partitions of which not every replica is in sync.
        refusing: those of them with fewer replicas in sync than min.insync.replicas: they refuse records written with
            acks=all.
    """

    behind: int = 0
    refusing: int = 0


#: The state of a topic whose replicas are all in sync, or unknown.
IN_SYNC: Final = ReplicaState()


class SourceLimits(NamedTuple):
    """The limits of a source: the largest record that it takes, and its min.insync.replicas (0: unknown)."""

    largest: int = USUAL_RECORD_SIZE
    in_sync: int = 0


@dataclass(frozen=True, slots=True)
class ManagedTopic:
    """A topic that the bridge manages.

    Attributes:
        source: the topic whose records it takes.
        delay: seconds that records wait there; `None` if they do not wait.
        most_partitions: the most partitions that the bridge gives it; `None` for as many as its source has.
    """

    name: str
    kind: TopicKind
    source: str
    delay: int | None = None
    most_partitions: int | None = None

    @property
    def retention_ms(self) -> int:
        """Return how long its records must be kept, in ms; -1 for ever."""
        return 2_000 * (self.delay or 0) + SPARE_RETENTION if self.kind in (TopicKind.RETRY, TopicKind.REPLAY) else -1

    @property
    def what(self) -> str:
        """Return a description of its records."""
        match self.kind:
            case TopicKind.RETRY:
                return f"records that wait {self.delay} s"
            case TopicKind.REPLAY:
                return "records that are sent back"
            case TopicKind.CONTROL:
                return "decisions for the group"
        return str(self.kind)

    def shape(self, source: TopicShape) -> TopicShape:
        """Return the partitions and replicas to create it with: those of its source, or fewer partitions."""
        if self.most_partitions is None:
            return source
        return source._replace(partitions=min(source.partitions, self.most_partitions))

    def config(self, limits: SourceLimits) -> dict[str, str]:
        """Return the configuration to create it with: no broker default may lose a record."""
        in_sync = {"min.insync.replicas": str(limits.in_sync)} if limits.in_sync else {}
        if self.kind is TopicKind.CONTROL:
            return {"cleanup.policy": "compact", **in_sync}
        config = {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": "-1",
            "max.message.bytes": str(limits.largest + HEADROOM),
        }
        if self.kind in (TopicKind.RETRY, TopicKind.REPLAY):
            # Kafka drops a record by its age, which a worker's clock must not decide.
            config["message.timestamp.type"] = "LogAppendTime"
        return config | in_sync

    @property
    def without(self) -> str:
        """Return the consequence while the topic does not exist."""
        match self.kind:
            case TopicKind.DEAD_LETTERS:
                return "a dead letter stays in the Celery broker, is not recorded, and is tried again"
            case TopicKind.RETRY:
                return f"deliveries that wait {self.delay} s wait in the Celery broker"
            case TopicKind.REPLAY:
                return "no dead letter can be replayed"
            case TopicKind.CONTROL:
                return "halts and policies are in Redis alone"
        return "nothing is consumed"

    @property
    def lost(self) -> str:
        """Return what is lost if Kafka drops one of its records."""
        return "a dead letter" if self.kind is TopicKind.DEAD_LETTERS else "a delivery"


def find_retention_fault(ours: ManagedTopic, config: Mapping[str, str]) -> str | None:
    """Return why a retry topic cannot be used at all: its records are dropped before they are due."""
    if ours.kind is not TopicKind.RETRY:
        return None
    kept = _number(config, "retention.ms")
    if kept is not None and 0 <= kept <= 1000 * (ours.delay or 0):
        return (
            f"topic {ours.name!r} keeps records for {kept / 1000:g} s (retention.ms), and they wait there for "
            f"{ours.delay} s: they would be dropped before they are due. Set its retention.ms to {ours.retention_ms}."
        )
    if "compact" in config.get("cleanup.policy", ""):
        return (
            f"topic {ours.name!r} is compacted (cleanup.policy): of the parked records of a key only the last would be "
            "kept. Set its cleanup.policy to delete."
        )
    return None


def find_topic_faults(
    ours: ManagedTopic, shape: TopicShape, config: Mapping[str, str], source: TopicShape, limits: SourceLimits
) -> list[str]:
    """Return the faults of an existing topic, a sentence each, with the fix.

    Parameters:
        config: the topic's configuration, as far as Kafka tells it.
        source, limits: of its source topic; of the control topic `find_control_shape`.
    """
    if ours.kind is TopicKind.SOURCE:
        return list(_unwritable(ours, shape, config))
    if ours.kind is TopicKind.CONTROL:
        return [*_control(ours, shape, config, source), *_unwritable(ours, shape, config)]
    found = [refused] if (refused := find_retention_fault(ours, config)) else list(_kept(ours, config))
    return [*found, *_cut(ours, shape, source), *_taken(ours, shape, config, limits)]


def _kept(ours: ManagedTopic, config: Mapping[str, str]) -> Iterator[str]:
    kept, bytes_kept = _number(config, "retention.ms"), _number(config, "retention.bytes")
    if ours.kind is not TopicKind.DEAD_LETTERS and kept is not None and 0 <= kept < 2_000 * (ours.delay or 0) + DAY:
        yield (
            f"topic {ours.name!r} keeps records for {kept / 3_600_000:.3g} h (retention.ms): records that bridges do "
            f"not read in that time are dropped. Set its retention.ms to {ours.retention_ms}."
        )
    if bytes_kept is not None and bytes_kept >= 0:
        yield (
            f"topic {ours.name!r} drops its oldest records from {bytes_kept:,} bytes a partition on (retention.bytes), "
            f"each of them {ours.lost}. Set its retention.bytes to -1."
        )
    if "compact" in config.get("cleanup.policy", ""):
        yield (
            f"topic {ours.name!r} is compacted (cleanup.policy): of {ours.what} only the last of a key is kept. "
            "Set its cleanup.policy to delete."
        )


def find_control_shape(sources: Iterable[TopicShape]) -> TopicShape:
    """Return the shape of the control topic: it is lost no sooner than any source."""
    return TopicShape(1, max((source.replicas for source in sources), default=1))


def _control(ours: ManagedTopic, shape: TopicShape, config: Mapping[str, str], source: TopicShape) -> Iterator[str]:
    if config and config.get("cleanup.policy", "") != "compact":
        yield (
            f"topic {ours.name!r} is not only compacted (cleanup.policy): what was decided is dropped with its age. "
            "Set its cleanup.policy to compact."
        )
    if shape.partitions > 1:
        yield (
            f"topic {ours.name!r} has {format_count(shape.partitions, 'partition')}: decisions are in the "
            "first alone; records that "
            "others write to the rest are not read. Create it with one partition."
        )
    if shape.replicas < source.replicas:
        yield (
            f"topic {ours.name!r} has {shape.replicas} replicas, and a source topic has {source.replicas}: halts and "
            "policies are lost sooner than its records. Give it as many (kafka-reassign-partitions)."
        )


def _cut(ours: ManagedTopic, shape: TopicShape, source: TopicShape) -> Iterator[str]:
    wanted = ours.shape(source).partitions
    if shape.partitions < wanted:
        few = "" if wanted == source.partitions else f", of which it needs {wanted} (kafka_retry_partitions)"
        yield (
            f"topic {ours.name!r} has {format_count(shape.partitions, 'partition')}, and {ours.source!r} has "
            f"{source.partitions}{few}: "
            "fewer bridges can share it. `bridge topics --create` adds the missing ones."
        )
    if shape.replicas < source.replicas:
        yield (
            f"topic {ours.name!r} has {shape.replicas} replicas, and {ours.source!r} has {source.replicas}: it is lost "
            "sooner than its source. Give it as many (kafka-reassign-partitions)."
        )


def _taken(ours: ManagedTopic, shape: TopicShape, config: Mapping[str, str], limits: SourceLimits) -> Iterator[str]:
    largest, in_sync = _number(config, "max.message.bytes"), _number(config, "min.insync.replicas")
    if largest is not None and largest < limits.largest:
        yield (
            f"topic {ours.name!r} takes records of up to {largest:,} bytes, and {ours.source!r} of {limits.largest:,}: "
            f"a larger one would not get there. Set its max.message.bytes to {limits.largest + HEADROOM}."
        )
    yield from _unwritable(ours, shape, config)
    if in_sync is not None and in_sync < limits.in_sync <= shape.replicas:
        yield (
            f"topic {ours.name!r} needs {in_sync} replicas in sync, and {ours.source!r} {limits.in_sync}: it "
            f"acknowledges records earlier than its source. Set its min.insync.replicas to {limits.in_sync}."
        )


def _unwritable(ours: ManagedTopic, shape: TopicShape, config: Mapping[str, str]) -> Iterator[str]:
    in_sync = _number(config, "min.insync.replicas")
    if in_sync is not None and in_sync > shape.replicas:
        what = "it takes no records"
        if ours.kind is TopicKind.SOURCE:
            what = "producers with acks=all cannot write to it"
        yield (
            f"topic {ours.name!r} needs {in_sync} replicas in sync and has {shape.replicas}: {what}. "
            f"Set its min.insync.replicas to {shape.replicas} or less."
        )


def count_replicas(partitions: Iterable[tuple[int, int]], config: Mapping[str, str]) -> ReplicaState:
    """Return the state of a topic's replicas.

    Parameters:
        partitions: for each, the number of its replicas and of those in sync.
    """
    behind = [(copies, in_sync) for copies, in_sync in partitions if in_sync < copies]
    wanted = _number(config, "min.insync.replicas") or 0
    return ReplicaState(len(behind), sum(in_sync < wanted <= copies for copies, in_sync in behind))


def _number(config: Mapping[str, str], name: str) -> int | None:
    text = config.get(name, "")
    return int(text) if text.lstrip("-").isdecimal() else None


def list_needed_topics(settings: Settings, routes: Routes) -> list[ManagedTopic]:
    """Return the topics that must exist beside the source topics from the start: for retries, replays and
    dead letters.
    """
    return [
        ours
        for topic in routes.topics
        for ours in list_topics_beside(settings, topic, list_needed_tiers(settings, routes, topic))
    ]


def list_needed_tiers(settings: Settings, routes: Routes, topic: str) -> list[int]:
    """Return the tiers of a topic that its handlers' own policies may use, in seconds, ascending."""
    file = settings.file
    asked = (
        retry_placement.required_tiers(
            handler.retry_delays, handler.longest_delay, file.kafka_park_after, file.kafka_retry_tiers
        )
        for handler in routes.of(topic)
    )
    return sorted({delay for delays in asked for delay in delays})


def list_topics_beside(settings: Settings, topic: str, delays: Iterable[int]) -> list[ManagedTopic]:
    """Return the managed topics of a source with these tiers."""
    names = TopicNames.from_settings(settings)
    return [
        *(make_retry_topic(settings, topic, delay) for delay in delays),
        make_topic_beside(settings, names.replay(topic), TopicKind.REPLAY, topic),
        make_topic_beside(settings, names.dead_letters(topic), TopicKind.DEAD_LETTERS, topic),
    ]


def make_retry_topic(settings: Settings, topic: str, delay: int) -> ManagedTopic:
    """Return the retry topic of a source topic with this delay."""
    name = TopicNames.from_settings(settings).retry(topic, delay)
    return make_topic_beside(settings, name, TopicKind.RETRY, topic, delay)


def make_topic_beside(
    settings: Settings, name: str, kind: TopicKind, source: str, delay: int | None = None
) -> ManagedTopic:
    """Return the topic of this name for retries, replays or dead letters of a source.

    Beside a source without order it has `kafka_retry_partitions` at most: each costs the bridges, used or not.
    """
    most = None if settings.topic(source).order else settings.file.kafka_retry_partitions
    return ManagedTopic(name, kind, source, delay, most)
