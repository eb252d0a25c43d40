"""The survey of a group's topics in Kafka: the use of each, and its faults."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.handler_routes import Handler, Routes
from bridge.kafka import retry_placement
from bridge.kafka.clients import NO_LEADER, AdminClient
from bridge.kafka.consumer_groups import find_consumed_topics
from bridge.kafka.managed_topic import (
    IN_SYNC,
    ManagedTopic,
    ReplicaState,
    SourceLimits,
    TopicKind,
    TopicShape,
    count_replicas,
    find_control_shape,
    find_retention_fault,
    find_topic_faults,
    list_needed_tiers,
    list_needed_topics,
    make_retry_topic,
    make_topic_beside,
)
from bridge.kafka.partition_offsets import ExtentReader
from bridge.kafka.topic_admin import read_cluster, read_source_limits, read_topic_configs
from bridge.kafka.topic_names import DerivedTopics, TopicNames
from bridge.settings import Settings

#: Whether handlers need a topic from the start, may park deliveries there, or neither, in which case it is drained.
#: A topic whose source has no handlers any more is abandoned: nothing is handed off from it.
TopicUse = Literal["needed", "at need", "drained", "abandoned"]


@dataclass(frozen=True, slots=True)
class SurveyedTopic:
    """A topic as it was found.

    Attributes:
        partitions: how many, or `None` if it does not exist.
        retention_ms: how long its records are kept, -1 for ever; `None` if unknown.
        problems: its faults, a sentence each.
        refused: whether a bridge refuses to start with it.
        replicas: the state of its replicas.
        leaderless: its partitions without a leader, which nobody can read or write.
    """

    ours: ManagedTopic
    use: TopicUse
    partitions: int | None = None
    retention_ms: int | None = None
    problems: tuple[str, ...] = ()
    refused: bool = False
    replicas: ReplicaState = IN_SYNC
    leaderless: tuple[int, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the topic as JSON-able data."""
        return {
            "topic": self.ours.name,
            "kind": self.ours.kind.value,
            "source": self.ours.source or None,
            "delay": self.ours.delay,
            "use": self.use,
            "exists": self.partitions is not None,
            "partitions": self.partitions,
            "retention_ms": self.retention_ms,
            "out_of_sync": self.replicas.behind,
            "problem": " ".join(self.problems) or None,
        }


def survey_topics(
    admin: AdminClient,
    settings: Settings,
    routes: Routes,
    changed: Collection[Handler] = (),
    others: Collection[str] | None = (),
) -> list[SurveyedTopic]:
    """Return the handlers' topics and the managed topics beside them, existing or needed, by source.

    Parameters:
        changed: handlers with their changed policies: the topics that these need are needed too.
        others: sources with handlers in living members of the group: their topics are not abandoned. `None` if unknown:
            no topic counts as abandoned then.

    Raises:
        KafkaUnavailable: Kafka did not answer.
    """
    cluster = read_cluster(admin)
    known = cluster.shapes
    listed = [
        *list_group_topics(settings, routes, known, changed),
        *(() if others is None else _left_over(settings, routes, known, frozenset(others))),
    ]
    if cluster.is_mock:
        return [
            SurveyedTopic(
                ours,
                use,
                known[ours.name].partitions if ours.name in known else None,
                leaderless=_find_leaderless(cluster.topics.get(ours.name)),
            )
            for ours, use in listed
        ]
    there = [ours.name for ours, _ in listed if ours.name in known]
    config, limits = (
        read_topic_configs(admin, there),
        read_source_limits(admin, [t for t in routes.topics if t in known]),
    )
    # Before it starts, a bridge checks only the topics that its code needs.
    code = {*list_needed_topics(settings, routes)}
    return [
        replace(
            _survey_topic(ours, use, known, config.get(ours.name, {}), limits, ours in code),
            replicas=_replicas(cluster.topics.get(ours.name), config.get(ours.name, {})),
            leaderless=_find_leaderless(cluster.topics.get(ours.name)),
        )
        for ours, use in listed
    ]


def list_group_topics(
    settings: Settings, routes: Routes, known: Collection[str], changed: Collection[Handler] = ()
) -> Iterator[tuple[ManagedTopic, TopicUse]]:
    """Yield the handlers' topics and the managed topics beside them, with their use (pure).

    Parameters:
        known: the names of existing topics.
        changed: as in `survey_topics`.
    """
    names = TopicNames.from_settings(settings)
    # The topics of the code's policies are needed too: a change may be withdrawn at any time.
    routes = Routes({**routes.handlers, **{f"{each.name}, changed": each for each in changed}})
    wanted = list_needed_topics(settings, routes)
    tiers_there: dict[str, dict[str, int]] = {topic: {} for topic in routes.topics}
    for name, each in DerivedTopics(names, routes.topics).find_derived(known).items():
        if each.kind == "retry":
            tiers_there[each.source][name] = each.delay
    others: dict[str, list[ManagedTopic]] = {topic: [] for topic in routes.topics}
    for ours in wanted:
        if ours.kind is not TopicKind.RETRY:
            others[ours.source].append(ours)
    for topic in routes.topics:
        yield ManagedTopic(topic, TopicKind.SOURCE, topic), "needed"
        # No existing tier is left out: its records are handed off when they are due, whoever needs it.
        there = tiers_there[topic]
        tiers_of = {
            make_retry_topic(settings, topic, delay): delay for delay in list_needed_tiers(settings, routes, topic)
        }
        existing = (make_topic_beside(settings, n, TopicKind.RETRY, topic, d) for n, d in there.items())
        for ours in sorted({*tiers_of, *existing}, key=_by_delay):
            yield ours, "needed" if ours in tiers_of else _use(settings, routes, ours)
        yield from ((ours, "needed") for ours in others[topic])
    yield ManagedTopic(names.control, TopicKind.CONTROL, ""), "needed"


def _by_delay(ours: ManagedTopic) -> tuple[int, str]:
    return (ours.delay or 0, ours.name)


def _use(settings: Settings, routes: Routes, ours: ManagedTopic) -> TopicUse:
    """Return the use of an existing tier that no policy needs from the start."""
    possible = {
        make_retry_topic(settings, ours.source, delay) for delay in list_possible_tiers(settings, routes, ours.source)
    }
    return "at need" if ours in possible else "drained"


def _left_over(
    settings: Settings, routes: Routes, known: Collection[str], others: frozenset[str]
) -> Iterator[tuple[ManagedTopic, TopicUse]]:
    """Yield the retry topics of sources without handlers on which this group has commits.

    A topic that a living member of the group consumes is left out, whatever Redis that member uses.
    """
    belongings = DerivedTopics(TopicNames.from_settings(settings), routes.topics)
    sources = {name: source for name in known if (source := belongings.source_of(name))}
    named = {*routes.topics, *others}
    gone = sorted(name for name, source in sources.items() if source not in named and name not in named)
    extents = ExtentReader().read(settings, gone) if gone else []
    ours = {extent.topic for extent in extents if extent.committed is not None}
    if not ours:
        return
    try:
        consumed = find_consumed_topics(settings)
    except KafkaUnavailable:
        return
    if consumed is None:
        return
    ours = {name for name in ours if name not in consumed and sources[name] not in consumed}
    of_gone = DerivedTopics(TopicNames.from_settings(settings), {sources[name] for name in ours}).find_derived(ours)
    for name, each in sorted(of_gone.items()):
        yield make_topic_beside(settings, name, TopicKind.RETRY, each.source, each.delay), "abandoned"


def list_waiting_topics(surveyed: Iterable[SurveyedTopic]) -> list[str]:
    """Return the existing retry and replay topics."""
    return [
        s.ours.name for s in surveyed if s.partitions is not None and s.ours.kind in (TopicKind.RETRY, TopicKind.REPLAY)
    ]


def list_possible_tiers(settings: Settings, routes: Routes, topic: str) -> frozenset[int]:
    """Return the tiers of a topic that some handler may use, also by `RetryLater`."""
    file = settings.file
    asked = (
        retry_placement.usable_tiers(handler.retry_delays, file.kafka_park_after, file.kafka_retry_tiers)
        for handler in routes.of(topic)
    )
    return frozenset(delay for delays in asked for delay in delays)


def _replicas(topic: Any, config: Mapping[str, str]) -> ReplicaState:
    """Return the state of a topic's replicas from its metadata; in sync if it does not exist."""
    partitions = () if topic is None else topic.partitions.values()
    return count_replicas(((len(partition.replicas), len(partition.isrs)) for partition in partitions), config)


def _find_leaderless(topic: Any) -> tuple[int, ...]:
    """Return the partitions of a topic that have no leader, from its metadata; none if it does not exist."""
    partitions = {} if topic is None else topic.partitions
    return tuple(number for number, partition in sorted(partitions.items()) if partition.leader < 0)


def find_leaderless_partitions(surveyed: Iterable[SurveyedTopic]) -> dict[Place, str]:
    """Return the partitions without a leader, each with the reason that it cannot be read (pure)."""
    return {(seen.ours.name, number): NO_LEADER for seen in surveyed for number in seen.leaderless}


def _find_source(ours: ManagedTopic, known: Mapping[str, TopicShape], sources: Iterable[str]) -> TopicShape:
    """Return the shape by which that of a topic is judged."""
    if ours.kind is TopicKind.CONTROL:
        return find_control_shape(known[source] for source in sources)
    return known.get(ours.source, TopicShape(0, 0))


def _survey_topic(
    ours: ManagedTopic,
    use: TopicUse,
    known: Mapping[str, TopicShape],
    config: Mapping[str, str],
    limits: Mapping[str, SourceLimits],
    at_start: bool,
) -> SurveyedTopic:
    shape = known.get(ours.name)
    if shape is None:
        return SurveyedTopic(ours, use, problems=(describe_missing_topic(ours, known),))
    kept = config.get("retention.ms", "")
    source = _find_source(ours, known, limits)
    faults = find_topic_faults(ours, shape, config, source, limits.get(ours.source, SourceLimits()))
    return SurveyedTopic(
        ours,
        use,
        shape.partitions,
        int(kept) if kept.lstrip("-").isdecimal() else None,
        tuple(faults),
        refused=at_start and find_retention_fault(ours, config) is not None,
    )


def describe_missing_topic(ours: ManagedTopic, known: Container[str]) -> str:
    """Return what a missing topic means, and what creates it.

    Parameters:
        known: the topics that exist.
    """
    if ours.kind is TopicKind.SOURCE:
        return (
            f"topic {ours.name!r} does not exist yet: it is consumed as soon as it does. Its owner creates it, with as "
            "many partitions as it needs, and not the bridge: `kafka-topics.sh --bootstrap-server "
            f"$KAFKA_BOOTSTRAP_SERVERS --create --topic {ours.name} --partitions 6`."
        )
    when = "" if ours.kind is TopicKind.CONTROL or ours.source in known else f" once {ours.source!r} exists"
    return f"topic {ours.name!r} does not exist, and {ours.without}: `bridge topics --create` makes it{when}."
